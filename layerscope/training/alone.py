"""A batch in parts that may be padded: all of it, or, where padding changes a model's states, one length at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from layerscope.models import LayeredModel


@dataclass(frozen=True)
class Parts:
    """The inputs of each part, and the order that puts their rows, one part after another, back as they came."""

    inputs: tuple[dict[str, Any], ...]
    order: Tensor | None = None
    width: int = 0

    def joined(self, found: Sequence[Tensor]) -> Tensor:
        """Return what the parts gave, `[b, …]` each, as that of the batch; of tokens those that are missing are 0."""
        if self.order is None:
            return found[0]
        wide = [one if one.ndim < 3 else _widened(one, self.width) for one in found]
        return torch.cat(wide)[self.order.to(wide[0].device)]

    def readers(self, reads: Sequence[Callable[[int], Tensor]]) -> Callable[[int], Tensor]:
        """Return what reads a place of every part."""
        return lambda place: self.joined([read(place) for read in reads])


def parts_of(model: LayeredModel, named: dict[str, Any]) -> Parts:
    """Return the parts of a batch whose samples may be padded to the longest of them; the others are never padded."""
    mask = named.get("attention_mask")
    if mask is None or mask.ndim != 2 or model.padding:  # nothing is read from the device where nothing hangs on it
        return Parts((named,))
    lengths = mask.sum(1)
    if model.joins(int(lengths.min()), mask.shape[1]):
        return Parts((named,))
    rows = [(lengths == length).nonzero()[:, 0] for length in lengths.unique()]
    inputs = tuple(_cut(named, part, int(lengths[part[0]]), mask.shape) for part in rows)
    return Parts(inputs, torch.cat(rows).argsort(), mask.shape[1])


def _cut(named: dict[str, Any], rows: Tensor, length: int, shape: torch.Size) -> dict[str, Any]:
    def own(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.ndim or len(value) != shape[0]:
            return value
        return value[rows, :length] if value.shape[: len(shape)] == shape else value[rows]

    return {name: own(value) for name, value in named.items()}


def _widened(states: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(states, (0, 0, 0, width - states.shape[1]))
