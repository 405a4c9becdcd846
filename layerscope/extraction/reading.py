"""The states of some samples at some layers: batched by length, read in forwards that end at the deepest layer."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.core.prefetch import ahead
from layerscope.inputs.pairs import Ids
from layerscope.inputs.state_folder import TOKENS
from layerscope.models import Inputs, LayeredModel, TextEncoder, batches_of, pool
from layerscope.models.capture import capture
from layerscope.models.encode import Encoder
from layerscope.models.forward import in_halves


@dataclass(frozen=True)
class Wanted:
    """Which states are kept of a sample: rising `layers` at one site, pooled or (no poolings) of every token."""

    layers: tuple[int, ...]
    site: str
    poolings: tuple[str, ...]
    dtype: torch.dtype
    batch_size: int | None


@dataclass(frozen=True)
class Prepared:
    """Samples, texts as token ids, with their lengths; `ids` lists those of texts, `cut` counts those that are cut."""

    samples: Sequence[Any]
    ids: list[list[int]] | None
    lengths: list[int]
    cut: int

    def inputs(self, encoder: Encoder, rows: Sequence[int]) -> Inputs:
        """Return some of the samples as one batch."""
        return encoder.batch([self.samples[row] for row in rows]).pinned()


@dataclass(frozen=True)
class Read:
    """The states of those samples that have a token: `rows` are their numbers.

    `states` has `[layers, n, D]` for each pooling; of every token, `[layers, T, D]` of all samples
    one after another, sample i from `offsets[i]` to `offsets[i + 1]`. `ids` are the token ids of
    texts, `cut` counts those that were cut.
    """

    rows: list[int]
    states: dict[str, Tensor]
    offsets: list[int]
    ids: list[list[int]] | None
    cut: int


def layers_of(layers: list[int] | str, depth: int) -> tuple[int, ...]:
    """Return layers in rising order, each once, negative ones counted from the end; refuse what does not exist."""
    if isinstance(layers, str):  # all
        return tuple(range(depth + 1))
    for layer in layers:
        if not -depth - 1 <= layer <= depth:
            raise LayerscopeError(
                f"layer {layer} does not exist: this model has layers 0..{depth}"
            )
    return tuple(sorted({layer % (depth + 1) for layer in layers}))


def read_states(
    model: LayeredModel,
    prepared: Prepared,
    wanted: Wanted,
    say: Callable[[str], None] = lambda line: None,
) -> Read:
    """Return the states of samples; a batch that does not fit into memory is computed in halves, which `say` hears.

    Raises `LayerscopeError` for a single sample that does not fit.
    """
    lengths = prepared.lengths
    encoder = model.encoder

    def halved(batch: Sequence[int]) -> None:
        say(f"out of memory: a batch of {len(batch)} samples is computed in halves")

    def about(batch: Sequence[int]) -> str:
        return f"of length {lengths[batch[0]]}"

    parts: dict[str, list[Tensor]] = defaultdict(list)
    order: list[int] = []
    batches = batches_of(model, lengths, wanted.batch_size)
    filled = [batch for batch in batches if lengths[batch[0]] > 0]
    for whole, inputs in ahead(partial(prepared.inputs, encoder), filled):

        def run(
            batch: Sequence[int], whole: Sequence[int] = whole, inputs: Inputs = inputs
        ) -> dict[str, list[Tensor]]:
            if batch is not whole:
                inputs = prepared.inputs(encoder, batch)
            return _forward(model, inputs.to(model.device), wanted)

        for batch, by_pooling in in_halves(whole, run, halved, about):
            order += batch
            for name, tensors in by_pooling.items():
                parts[name] += tensors
    rows = sorted(order)
    offsets, states = _in_order(parts, order, wanted, model.width)
    ids = prepared.ids
    if ids is not None:
        ids = [ids[row] for row in rows]
    return Read(rows, states, offsets, ids, prepared.cut)


def prepare(model: LayeredModel, samples: Sequence[Any]) -> Prepared:
    """Return samples as `read_states` takes them: texts tokenised, others measured."""
    encoder = model.encoder
    if not isinstance(encoder, TextEncoder):
        lengths = encoder.lengths(samples)
        return Prepared(samples, None, lengths, encoder.cut)
    ids = encoder.ids(samples)
    lengths = list(map(len, ids))
    longest = np.flatnonzero(np.equal(lengths, encoder.max_length)).tolist()
    encoder.lengths([samples[i] for i in longest])
    rows = [Ids(tuple(row)) for row in ids]
    return Prepared(rows, ids, lengths, encoder.cut)


def _in_order(
    parts: dict[str, list[Tensor]], order: list[int], wanted: Wanted, width: int
) -> tuple[list[int], dict[str, Tensor]]:
    """Return batches as one tensor each, in the order of the samples, and where each sample's rows start."""
    back = np.argsort(order).tolist()
    offsets = list(range(len(order) + 1))
    states = {}
    none = torch.empty(len(wanted.layers), 0, width, dtype=wanted.dtype)
    for name in wanted.poolings or (TOKENS,):
        batches = parts[name]
        if name == TOKENS:
            by_sample = [batches[i] for i in back]
            sizes = [len(each[0]) for each in by_sample]
            offsets = list(accumulate(sizes, initial=0))
            states[name] = torch.cat([none, *by_sample], 1)
        else:
            states[name] = torch.cat([none, *batches], 1)[:, back]
    return offsets, states


@torch.inference_mode()
def _forward(
    model: LayeredModel, inputs: Inputs, wanted: Wanted
) -> dict[str, list[Tensor]]:
    """Return one tensor [layers, B, D] for each pooling, or one [layers, T, D] for each sample."""
    stack = model.stack
    if wanted.site == "raw":
        stack = replace(stack, norm=None)
    kept = defaultdict[str, list[Tensor]](list)
    lengths = torch.empty(0)

    def visit(layer: int, site: str, states: Tensor) -> None:
        nonlocal lengths
        if layer not in wanted.layers or site != wanted.site:
            return
        mask = model.mask(inputs, states)
        for name in wanted.poolings:
            vectors = pool(states, mask, name)
            kept[name].append(vectors.to(wanted.dtype))
        if wanted.poolings:
            return
        lengths = torch.full((len(states),), states.shape[1])
        if mask is not None:
            lengths = mask.sum(1)
        # a block may change its input in place
        kept[TOKENS].append(states.to(wanted.dtype, copy=True))

    capture(model.module, stack, inputs, visit, wanted.layers[-1])
    stacked = {name: torch.stack(layers).cpu() for name, layers in kept.items()}
    if wanted.poolings:
        return {name: [vectors] for name, vectors in stacked.items()}
    by_sample = zip(stacked[TOKENS].unbind(1), lengths.tolist(), strict=True)
    return {TOKENS: [vectors[:, :size] for vectors, size in by_sample]}
