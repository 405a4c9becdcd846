"""When an exit is sure enough for a sample to leave: the stopping criteria of `exits`, a record each.

A criterion scores the log-probabilities of one exit, and a sample leaves at the first exit whose
score reaches the threshold.

A new criterion is a function and one entry of `CRITERIA`. The option, its help and checks, the
thresholds that calibration tries, the exit model and its file read it there:
docs/guides/add-a-criterion.md has an example.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def maximal_probability(log_p: "Tensor") -> "Tensor":
    """Return the probability of the likeliest class."""
    return log_p.amax(-1).exp()


def margin_of_top_two(log_p: "Tensor") -> "Tensor":
    """Return how much likelier the likeliest class is than the second."""
    return -log_p.exp().topk(2, dim=-1).values.diff(dim=-1)[..., 0]


def certainty(log_p: "Tensor") -> "Tensor":
    """Return 1 − entropy / log K: 0 where all classes are equally likely, 1 where one is certain."""
    import torch  # not before a model is read: help needs the names alone

    p = log_p.exp()
    entropy: Tensor = -torch.special.xlogy(p, p).sum(-1)
    return (1 - entropy / math.log(log_p.shape[-1])).clamp(0, 1)


@dataclass(frozen=True)
class Criterion:
    """How an exit decides whether it is sure.

    Attributes:
        score: from log-probabilities `[..., K]`, float64, to a score `[...]` in 0 … 1.
        least: the lowest score that K classes allow.

    """

    score: Callable[["Tensor"], "Tensor"]
    least: Callable[[int], float] = lambda classes: 0.0


CRITERIA = {
    "confidence": Criterion(maximal_probability, least=lambda classes: 1 / classes),
    "margin": Criterion(margin_of_top_two),
    "entropy": Criterion(certainty),
}
"""By the name that `exits --criterion` takes; the paper's is confidence."""
