"""How alike the layers of two runs are: every layer of one with every layer of the other, and checkpoints by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from layerscope.comparison.matching import Side, Sides
from layerscope.core.errors import LayerscopeError, choices
from layerscope.metrics.pairs.similarity import FromPairs
from layerscope.runs.registry import measured
from layerscope.runs.states import Column, StoredStates

Row = dict[str, Any]
SIMILARITIES = {metric.name: how for metric, how in measured(FromPairs)}


def chosen_similarities(sides: Sides, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Return the similarities that are computed: those asked for, else CKA, and cosine where the widths are equal.

    Raises `LayerscopeError` for an unknown name, and for cosine where widths differ.
    """
    widths = {side.width for side in sides}
    if asked is None:
        return ("cka", "cosine_similarity") if len(widths) == 1 else ("cka",)
    for name in asked:
        if name not in SIMILARITIES:
            raise LayerscopeError(f"similarity {name!r} does not exist{choices(name, tuple(SIMILARITIES))}")
        if SIMILARITIES[name].one_width and len(widths) > 1:
            listed = " and ".join(str(width) for width in sorted(widths))
            raise LayerscopeError(f"{name} needs states of one width, and these are {listed} wide: take cka")
    return tuple(dict.fromkeys(asked))


def pair_rows(a: Side, b: Side, name: str) -> Iterator[Row]:
    """Yield the similarity of every layer of one run with every layer of the other."""
    how = SIMILARITIES[name]
    a, b = (replace(side, rows=how.rows(side.rows)) for side in (a, b))
    if len(a.rows) < (needed := how.needed(max(a.width, b.width))):
        raise LayerscopeError(
            f"{name} is not defined for {len(a.rows):,} samples: at this width it needs {needed:,}; profile more, or "
            "choose another with `similarity`"
        )
    found = how.measured(a.states, b.states)
    for i, own in enumerate(a.columns):
        for j, other in enumerate(b.columns):
            yield {
                "metric": name, "variant": how.variant, "layer": own.layer, "site": own.site,
                "layer_b": other.layer, "site_b": other.site, "pooling": a.pooling, "pooling_b": b.pooling,
                **_numbers(found, i, j),
            }  # fmt: skip


def layer_rows(sides: Sides, name: str, column: Column) -> Iterator[tuple[int, int, Row]]:
    """Yield the similarity of one layer of every checkpoint with itself in the last one, and in the one before."""
    how = SIMILARITIES[name]
    taken = [replace(side, rows=how.rows(side.rows)) for side in sides]
    states = Checkpoints(tuple(side.layer(column) for side in taken))
    found = how.measured(states)
    last = len(sides) - 1
    for place, side in enumerate(taken):
        for other in dict.fromkeys((last, max(0, place - 1))):
            yield place, other, {
                "metric": name, "variant": how.variant, "layer": column.layer, "site": column.site,
                "layer_b": column.layer, "site_b": column.site, "pooling": side.pooling,
                "pooling_b": sides[other].pooling, **_numbers(found, place, other),
            }  # fmt: skip


def _numbers(found: tuple[Tensor, Tensor, Tensor], i: int, j: int) -> Row:
    value, error, count = (float(part[i, j]) for part in found)
    return {"value": value, "stderr": error, "n": int(count)}


@dataclass(frozen=True)
class Checkpoints:
    """One layer of several checkpoints as a lazy array [N, checkpoints, D]."""

    states: tuple[StoredStates, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(N, checkpoints, D)."""
        n, _, width = self.states[0].shape
        return n, len(self.states), width

    def __getitem__(self, block: slice) -> Tensor:
        return torch.cat([states[block] for states in self.states], 1)
