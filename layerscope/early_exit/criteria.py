"""When a row may leave: how sure an exit is of its prediction, always as a number that grows with it.

The criteria are, of the softmax, its maximum (the paper's), the difference of its two largest values, and
1 − entropy / log K, each in 0 … 1; and for how many exits in a row the prediction has not changed.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.core.option_kinds import Number, OneOf, Whole
from layerscope.early_exit.study import CRITERIA

NEVER = math.inf
"""The threshold that no score reaches: every row runs through all layers."""


def check_criterion(criterion: str) -> str:
    """Return a criterion that exists; raises `LayerscopeError` with those that do."""
    return str(OneOf(CRITERIA).take("criterion", criterion))


def check_threshold(value: Any, criterion: str) -> float:
    """Return a threshold that a criterion can reach, or `NEVER`; raises `LayerscopeError` for another."""
    kind = Whole(1) if criterion == "patience" else Number(0, 1)
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    if number != NEVER and not kind.fits(number):
        raise LayerscopeError(
            f"threshold of {criterion} is {value!r}: give {kind.title}{kind.bounds}, or infinity for never"
        )
    return float(value)


def sureness(logits: Tensor, criterion: str, source: str = "an exit") -> Tensor:
    """Return how sure logits `[..., K]` are by a criterion of one exit, float64 `[...]` in 0 … 1.

    In float64, because a float32 softmax is 1 for everything beyond 1 − 6e-8. "patience" asks several exits (see
    `unchanged`); what it says of one is its maximal probability.

    Raises:
        LayerscopeError: for logits that are NaN, which `source` gave.

    """
    log_p = logits.detach().to("cpu", torch.float64).log_softmax(-1)
    if bool(log_p.isnan().any()):
        raise LayerscopeError(f"{source} gives logits that are NaN: look at its weights and inputs")
    if criterion == "margin":
        return -log_p.exp().topk(2, dim=-1).values.diff(dim=-1)[..., 0]
    if criterion == "entropy":
        entropy: Tensor = -torch.special.xlogy(p := log_p.exp(), p).sum(-1)
        return (1 - entropy / math.log(logits.shape[-1])).clamp(0, 1)
    return log_p.amax(-1).exp()


def unchanged(predictions: Tensor) -> Tensor:
    """Return for how many exits in a row each prediction has not changed, int64 `[..., E]`; 0 at the first exit."""
    counts = torch.zeros_like(predictions)
    for exit in range(1, predictions.shape[-1]):  # noqa: A001
        same = predictions[..., exit] == predictions[..., exit - 1]
        counts[..., exit] = torch.where(same, counts[..., exit - 1] + 1, 0)
    return counts


class Rule:
    """The rule of one forward: a row leaves where its exit is sure enough."""

    def __init__(self, criterion: str, threshold: float) -> None:
        """Take a criterion, and the score from which on a row leaves."""
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
        else:
            counts = torch.where(predicted == self.last[here], self.counts[here] + 1, 0)
            self.last[here], self.counts[here] = predicted, counts
        return self.counts[here] >= self.threshold
