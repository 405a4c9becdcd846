"""When a row may leave: how sure an exit is of its prediction, always as a number that grows with it.

The criteria are, of the softmax, its maximum (the paper's), the difference of its two largest values, and
1 − entropy / log K, each in 0 … 1; and for how many exits in a row the prediction has not changed.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError, choices
from layerscope.early_exit.study import CRITERIA

NEVER = math.inf
"""The threshold that no score reaches: every row runs through all layers."""


def check_criterion(criterion: str) -> str:
    """Return a criterion that exists; raises `LayerscopeError` with those that do."""
    if criterion not in CRITERIA:
        raise LayerscopeError(f"criterion {criterion!r} does not exist{choices(str(criterion), CRITERIA)}")
    return criterion


def check_threshold(value: Any, criterion: str) -> float:
    """Return a threshold that makes sense for a criterion; raises `LayerscopeError` for another."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    if criterion == "patience":
        if not number or (value != NEVER and (value < 1 or value != int(value))):
            raise LayerscopeError(f"threshold {value!r} of patience: give a whole number of exits from 1 on")
    elif not number or not (0 <= value <= 1 or value == NEVER):
        raise LayerscopeError(f"threshold {value!r} of {criterion}: give 0 to 1, or infinity for never")
    return float(value)


def sureness(logits: Tensor, criterion: str, told: str = "an exit") -> Tensor:
    """Return how sure logits `[..., K]` are by a criterion of one exit, float64 `[...]` in 0 … 1.

    In float64, because a float32 softmax is 1 for everything beyond 1 − 6e-8. "patience" asks several exits (see
    `unchanged`); what it says of one is its maximal probability.

    Raises:
        LayerscopeError: for logits that are NaN, which `told` gave.

    """
    log_p = logits.detach().to("cpu", torch.float64).log_softmax(-1)
    if bool(log_p.isnan().any()):
        raise LayerscopeError(
            f"{told} gives logits that are NaN: nothing can be said of these rows, look at weights and inputs"
        )
    if criterion == "margin":
        return -log_p.exp().topk(2, dim=-1).values.diff(dim=-1)[..., 0]
    if criterion == "entropy":
        entropy: Tensor = -torch.special.xlogy(p := log_p.exp(), p).sum(-1)
        return (1 - entropy / math.log(logits.shape[-1])).clamp(0, 1)
    return log_p.amax(-1).exp()


def unchanged(predictions: Tensor) -> Tensor:
    """Return for how many exits in a row each prediction has not changed, int64 `[..., E]`; 0 at the first exit."""
    counts = torch.zeros_like(predictions)
    for place in range(1, predictions.shape[-1]):
        same = predictions[..., place] == predictions[..., place - 1]
        counts[..., place] = torch.where(same, counts[..., place - 1] + 1, 0)
    return counts


class Rule:
    """The rule of one forward: a row leaves where its exit is sure enough."""

    def __init__(self, criterion: str, threshold: float) -> None:
        """Take a criterion, and from where on a row leaves."""
        self.criterion, self.threshold = criterion, threshold
        self.last: Tensor | None = None

    def __call__(self, layer: int, logits: Tensor, rows: Tensor) -> Tensor:
        """Return which rows leave, bool [b], on the processor."""
        sure = sureness(logits, self.criterion, f"layer {layer}")
        if self.criterion != "patience":
            return sure >= self.threshold
        predicted, here = logits.argmax(-1).cpu(), rows.cpu()
        if self.last is None:
            self.last, self.counts = predicted, torch.zeros_like(predicted)
            return self.counts >= self.threshold
        counts = torch.where(predicted == self.last[here], self.counts[here] + 1, 0)
        self.last[here], self.counts[here] = predicted, counts
        return counts >= self.threshold
