"""Any measure of every two layers: each layer prepared once, as many held at a time as memory allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from layerscope.metrics.measure import Measure, Prepared
from layerscope.metrics.pairs import blocks as reading
from layerscope.metrics.pairs.blocks import Blocks, States, opened

HELD_BYTES = 2**30
"""Prepared layers held at a time: at least one, however large it is."""


def by_layer(measure: Callable[..., Measure]) -> Callable[..., Tensor]:
    """Return `every_two` of a measure, whose options become those of the function."""

    @wraps(measure)
    def compute(states: States, others: States | None, **options: Any) -> Tensor:
        return every_two(measure(**options), states, others)

    return compute


def every_two(measure: Measure, states: States, others: States | None) -> Tensor:
    """Return the measure of every two layers `[L, L']`, per-sample measures as their mean over samples that have one.

    Where the prepared layers outgrow `HELD_BYTES`, those beyond are prepared again for each lot that is held.
    """
    left, right = opened(states, others, center=False)
    found = torch.full((left.layers, right.layers), torch.nan, dtype=torch.float64)
    start = 0
    while start < left.layers:
        held = _lot(measure, left, start)
        stop = start + len(held)
        rest = _prepared(measure, right, stop) if right is left else _prepared(measure, right, 0)
        columns = enumerate(chain(held, rest), start) if right is left else enumerate(rest)
        for b, second in columns:
            for a, first in enumerate(held, start):
                if right is left and b < a:
                    continue
                found[a, b] = measure.between(first, second).nanmean()
                if right is left and a != b:
                    found[b, a] = found[a, b] if measure.symmetric else measure.between(second, first).nanmean()
        start = stop
    return found


def _lot(measure: Measure, side: Blocks, start: int) -> list[Prepared]:
    held: list[Prepared] = []
    size = 0
    for prepared in _prepared(measure, side, start):
        held.append(prepared)
        size += sum(part.nbytes for part in prepared)
        if size + size // len(held) > HELD_BYTES:
            break
    return held


def _prepared(measure: Measure, side: Blocks, start: int) -> Iterator[Prepared]:
    """Yield the layers from `start` on, read as many at a time as fit in a block."""
    together = max(1, reading.BLOCK_BYTES // (8 * side.count * side.width))
    for low in range(start, side.layers, together):
        layers = slice(low, min(low + together, side.layers))
        rows = torch.empty(layers.stop - low, side.count, side.width, dtype=torch.float64)
        for span in side.spans:
            rows[:, span] = side.read(span)[layers].cpu()
        for layer in rows:
            yield measure.prepare(layer)
