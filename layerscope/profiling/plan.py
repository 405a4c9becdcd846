"""Which row is computed in which batch: fixed and stored before the first one.

A row is a sample, or a view of one. Rows are sorted by length and cut into batches with little
padding, batches into shards, which are computed and written whole. All that is drawn is drawn here
by the seed, so that a run that was killed goes on to the same numbers.

Four texts of 9, 3, 8 and 4 tokens, two to a batch; the second text has one view of 5 tokens:

    sample view length batch shard offset
         0    0      9     0     0      0
         2    0      8     0     0      1
         3    0      4     1     0      2
         1    0      3     1     0      3
         1    1      5     2     1      0
"""

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.inputs import Corpus, augment
from layerscope.inputs.samples import content, key_of
from layerscope.models import LayeredModel, Vectors
from layerscope.models.batching import batch_starts
from layerscope.models.encode import TextEncoder
from layerscope.models.layered import class_numbers
from layerscope.models.sublayers.watch import Sublayers
from layerscope.profiling.options import PassOptions

BATCHES_PER_SHARD = 4
LENS_SHARE, LENS_MOST, LENS_LEAST = 1 / 32, 4096, 256
# products of a head that may read every token of all layers: some 20 s of a CPU core
LENS_WHOLE = 1 << 39
# eigenvalues are what a pass spends its time on where the forward is fast
ENTROPY_SAMPLES = 256
Tensors = dict[str, Tensor]
"""What is measured of the rows of a batch or shard, by key."""


@dataclass(frozen=True)
class Job:
    """A model ready for the pass, the samples drawn, the options checked, and the vectors kept of a sample."""

    model: LayeredModel
    corpus: Corpus
    options: PassOptions
    vectors: Vectors
    inner: Sublayers = Sublayers()
    """Sub-layers that metrics look at which change how the model runs; those of `model` are measured themselves."""


def seeded(items: Any, most: int, seed: Any) -> Any:
    """Return up to `most` of the items, drawn by the seed, in order.

    >>> len(seeded(np.arange(100), 3, seed=0)), seeded(np.arange(3), 100, seed=0).tolist()
    (3, [0, 1, 2])
    """
    if len(items) <= most:
        return items
    draw = np.random.default_rng(seed)
    return np.sort(draw.choice(items, most, replace=False))


def make_plan(job: Job) -> pd.DataFrame:
    """Return a row for every forward of a sample: the originals, then the views of some of them.

    Rows are sorted by length, longest first, so that a batch holds little padding and memory runs
    out early or never. Columns:

    sample, view, length: number in the corpus, 0 for the sample itself, tokens;
    name, label, key: of the sample; the key is a text's, by which `evaluate` finds its states;
    copy: whether it is an exact copy of an earlier sample (only where there are some);
    batch, shard, offset: where it is computed, and its row in the shard;
    position: of a causal language model's vector for similarities;
    lens, target: token positions that the head reads, or the class it is to give a sample;
    entropy: whether its eigenvalues are computed (only on a GPU).

    `attrs["cut"]` is the number of samples cut at the maximal length, `attrs["empty"]` that of
    samples without a token, which have no row.
    """
    model = job.model
    corpus = job.corpus
    options = job.options
    lengths = np.array(model.encoder.lengths(corpus.samples))
    cut = getattr(model.encoder, "cut", 0)
    kept = np.flatnonzero(lengths > 0)
    if not len(kept):
        raise LayerscopeError(
            f"no sample of {corpus.name} has a token left: check the data"
        )
    originals = pd.DataFrame({"sample": kept, "view": 0, "length": lengths[kept]})
    # views are measured differently from originals, so no batch holds both
    parts = [_batched(originals, job)]
    if options.wants("views") and options.views:
        parts.append(_batched(_views(job, kept), job))
    plan = pd.concat(parts, ignore_index=True)
    for name in ("batch", "shard"):
        plan[name] = plan.pop(f"{name}_starts").cumsum() - 1
    plan["offset"] = plan.groupby("shard").cumcount()
    _describe(plan, job)
    if model.device.type != "cpu":
        chosen = seeded(kept, ENTROPY_SAMPLES, options.seed)
        is_original = plan["view"] == 0
        plan["entropy"] = plan["sample"].isin(chosen) & is_original
    _draw_positions(plan, job)
    if model.lens is not None and model.lens.kind == "pooled" and "label" in plan:
        targets = class_numbers(plan["label"], model)
        if None not in targets:
            plan["target"] = np.array(targets, dtype=np.int64)
    plan.attrs |= {"cut": cut, "empty": len(corpus) - len(kept)}
    return plan


def _describe(plan: pd.DataFrame, job: Job) -> None:
    """Add what is known of each sample: name, label, key, and whether it is a copy."""
    corpus = job.corpus
    encoder = job.model.encoder
    samples = plan["sample"]
    plan["name"] = samples.map(dict(enumerate(corpus.names)))
    if corpus.labels is not None:
        plan["label"] = samples.map(dict(enumerate(corpus.labels)))
        if plan["label"].map(type).nunique() > 1:  # no column mixes the two
            plan["label"] = plan["label"].astype(str)
    is_text = isinstance(corpus.samples[int(samples[0])], str)
    if is_text and isinstance(encoder, TextEncoder):
        keys = {}
        for sample in samples.unique().tolist():
            keys[sample] = key_of(encoder.prompt + corpus.samples[sample]).hex()
        plan["key"] = samples.map(keys).where(plan["view"] == 0)
    if corpus.copies.any():
        plan["copy"] = corpus.copies[samples]


def _views(job: Job, samples: npt.NDArray[np.int64]) -> pd.DataFrame:
    """Return a row for every view of some seeded samples."""
    options = job.options
    frames = []
    chosen = seeded(samples, options.view_samples, options.seed)
    for view in range(1, options.views + 1):
        views = (view_of(job, int(sample), view) for sample in chosen)
        lengths = np.maximum(job.model.encoder.lengths(views), 1)
        frames.append(pd.DataFrame({"sample": chosen, "view": view, "length": lengths}))
    return pd.concat(frames, ignore_index=True)


def view_of(job: Job, sample: int, view: int) -> Any:
    """Return a sample, or one of its seeded augmentations."""
    original = job.corpus.samples[sample]
    options = job.options
    if view == 0:
        return original
    # by its name: the same views whatever else is drawn
    sample_id = zlib.crc32(job.corpus.names[sample].encode())
    return augment(
        original, job.corpus.modality, seed=options.seed, sample_id=sample_id, view=view
    )


def _batched(frame: pd.DataFrame, job: Job) -> pd.DataFrame:
    """Sort rows by length and mark where batches and shards start."""
    frame = frame.sort_values(
        ["length", "view", "sample"], ascending=[False, True, True], ignore_index=True
    )
    starts = batch_starts(job.model, frame["length"], job.options.batch_size)
    shards = starts & ((np.cumsum(starts) - 1) % BATCHES_PER_SHARD == 0)
    return frame.assign(batch_starts=starts, shard_starts=shards)


def _draw_positions(plan: pd.DataFrame, job: Job) -> None:
    """Draw the token positions that are looked at one by one, apart from everything else that is drawn."""
    model = job.model
    options = job.options
    lengths = np.where(plan["view"] == 0, plan["length"], 0)
    if "position" in job.vectors.pairs:
        shares = _shares(plan["sample"].tolist(), job)
        plan["position"] = (shares * lengths).astype(int)
    if model.lens is not None and model.lens.kind == "tokens" and options.wants("lens"):
        readable = lengths
        if model.causal:  # the last token has no next one
            readable = np.maximum(lengths - 1, 0)
        total = int(readable.sum())
        number = _number_read(job, model.lens.classes, total)
        draw = np.random.default_rng([options.seed, 4])
        tokens = np.sort(draw.choice(total, number, replace=False))
        plan["lens"] = _by_row(tokens, readable)


def _number_read(job: Job, classes: int, total: int) -> int:
    """Return how many of all tokens the head reads."""
    most = job.options.lens_tokens
    if most is None:
        return total
    if most == "auto":
        products = len(job.model.layers) * job.model.width * classes * total
        if products <= LENS_WHOLE:
            return total
        most = min(LENS_MOST, max(LENS_LEAST, int(total * LENS_SHARE)))
    return min(int(most), total)


def _by_row(
    tokens: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> list[list[int]]:
    """Return the positions in each row of tokens, ascending, that are numbered through all rows.

    >>> _by_row(np.array([1, 2, 5]), lengths=np.array([3, 0, 4]))
    [[1, 2], [], [2]]
    """
    ends = np.cumsum(lengths)
    rows = np.split(tokens, np.searchsorted(tokens, ends[:-1]))
    starts = ends - lengths
    return [(row - start).tolist() for row, start in zip(rows, starts, strict=True)]


def _shares(samples: Sequence[int], job: Job) -> npt.NDArray[np.float64]:
    """Draw from [0, 1) for each sample, by the seed and what the model reads of it, whatever else is drawn.

    Of a text that is the token ids, which may as well be given themselves.
    """
    encoder = job.model.encoder
    contents = job.corpus.samples
    if isinstance(encoder, TextEncoder):
        rows = encoder.ids([contents[sample] for sample in samples])
        read = (np.array(ids, dtype="<i8").tobytes() for ids in rows)
    else:
        read = (content(contents, sample) for sample in samples)
    salt = f"position {job.options.seed} ".encode()
    digests = [hashlib.blake2b(salt + each, digest_size=8).digest() for each in read]
    numbers = np.frombuffer(b"".join(digests), dtype="<u8")
    # a float64 holds 53 bits
    return (numbers >> 11) / (1 << 53)
