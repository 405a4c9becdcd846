import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from layerscope.core.errors import LayerscopeError
from layerscope.inputs.samples import Modality, content, pick

Labels = tuple[str | int, ...]


@dataclass(frozen=True, eq=False)
class Corpus:
    """The data a model reads: N samples of one modality, their names, and their labels where known.

    `samples` holds `str` or `Window` (text), RGB `PIL.Image` (image), `Waveform` (audio) or array rows
    (tensor); files are decoded when a sample is read. `notes` lists every guess and everything left out,
    one line each. `running` marks running text, whose samples are lines and may be packed into windows.

    >>> from layerscope.inputs import Corpus
    >>> corpus = Corpus("reviews", "text", ["good food", "rude staff"], names=["a", "b"], labels=("praise", "blame"))
    >>> corpus.take([1]).labels
    ('blame',)
    """

    name: str
    modality: Modality
    samples: Sequence[Any]
    names: Sequence[str]
    labels: Labels | None = None
    notes: tuple[str, ...] = ()
    running: bool = False

    def __post_init__(self) -> None:
        if len(self.samples) == 0:
            raise LayerscopeError(f"{self.name} holds no samples: give at least one")
        if len(self.names) != len(self.samples):
            raise LayerscopeError(f"{self.name}: {len(self.names)} names for {len(self.samples)} samples")
        if self.labels is not None and len(self.labels) != len(self.samples):
            raise LayerscopeError(
                f"{self.name}: {len(self.labels)} labels for {len(self.samples)} samples: give as many"
            )

    def __len__(self) -> int:
        return len(self.samples)

    def take(self, indices: Sequence[int]) -> "Corpus":
        """Return the samples at `indices`, in that order; what is lazy stays lazy."""
        chosen = [int(i) for i in indices]
        return replace(
            self,
            samples=pick(self.samples, chosen),
            names=tuple(self.names[i] for i in chosen),
            labels=None if self.labels is None else tuple(self.labels[i] for i in chosen),
        )

    def fingerprint(self) -> str:
        """Return the sha256 (hex) of modality, contents and labels: equal for equal data at any path."""
        digest = hashlib.sha256(self.modality.encode())
        for index in range(len(self)):
            data = content(self.samples, index)
            digest.update(len(data).to_bytes(8, "little") + data)
        digest.update(repr(self.labels).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    @cached_property
    def digests(self) -> npt.NDArray[np.uint64]:
        """A number for each sample `[N]`, whatever its label: equal for equal contents."""
        found = (hashlib.blake2b(content(self.samples, i), digest_size=8).digest() for i in range(len(self)))
        return np.frombuffer(b"".join(found), "<u8").astype(np.uint64)

    @cached_property
    def copies(self) -> npt.NDArray[np.bool_]:
        """Which samples `[N]` have exactly the content of an earlier one, whatever their label."""
        first = np.unique(self.digests, return_index=True)[1]
        return np.isin(np.arange(len(self)), first, invert=True)


WHOLE = 5
"""Samples that a class needs to be probed, one for each fold."""


def draw(corpus: Corpus, n: int | None, seed: int) -> Corpus:
    """Return `n` samples drawn without replacement by `seed`, in their original order.

    With `n` None, or no less than there are, the corpus is returned whole. Of labelled samples every class that has 5
    members keeps 5 at least, the rest is drawn at random; where `n` is too small for that, as many classes as fit are
    drawn, frequent ones more probably, and a note says how many are left out.
    Raises `LayerscopeError` where `n` is below 1.

    >>> from layerscope.inputs import draw, open_corpus
    >>> drawn = draw(open_corpus("reviews.csv"), 10, seed=0)
    >>> len(drawn), sorted(set(drawn.labels))
    (10, ['blame', 'praise'])
    """
    if n is not None and n < 1:
        raise LayerscopeError(f"samples is {n}: give 1 or more, or all")
    if n is None or n >= len(corpus):
        return corpus
    chosen = np.random.default_rng(seed).choice(len(corpus), size=n, replace=False)
    if corpus.labels is None or n < 2 * WHOLE:
        return corpus.take(np.sort(chosen).tolist())
    return _of_whole_classes(corpus, corpus.labels, chosen, seed)


def _of_whole_classes(corpus: Corpus, labels: Labels, chosen: npt.NDArray[np.int64], seed: int) -> Corpus:
    """Return as many samples as were `chosen`, as near to these as classes of 5 samples allow."""
    n = len(chosen)
    order = np.concatenate([chosen, np.random.default_rng(seed).permutation(np.setdiff1d(range(len(corpus)), chosen))])
    classes = np.unique(np.array(list(map(repr, labels))), return_inverse=True)[1][order]
    sizes, rank = np.bincount(classes), np.empty(len(classes), dtype=np.int64)
    rank[np.argsort(classes, kind="stable")] = np.arange(len(classes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    readable = [c for c in dict.fromkeys(classes.tolist()) if sizes[c] >= WHOLE]
    kept = readable[: n // WHOLE]
    member = np.isin(classes, kept)
    first = np.where(member & (rank < WHOLE), 0, 1 if len(kept) == len(readable) else np.where(member, 1, 2))
    found = corpus.take(np.sort(order[np.argsort(first, kind="stable")[:n]]).tolist())
    if len(kept) == len(readable):
        return found
    note = (
        f"the {n:,} samples are of {len(kept):,} of {len(readable):,} classes, {WHOLE} or more of each: "
        f"`samples={WHOLE * len(readable)}` would hold them all"
    )
    return replace(found, notes=(*found.notes, note))
