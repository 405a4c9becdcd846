"""The loss over the exits of a model, and the steps of a training that use it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor, nn

from layerscope.core import LayerscopeError, Number, OneOf
from layerscope.training.loss import (
    ExitStates,
    ExitWeights,
    Head,
    aligned_loss,
    at_least_float32,
    labelled_states,
    logits_of,
)
from layerscope.training.options import Name, Schedule


@dataclass(frozen=True)
class Objective:
    """A loss over exits, and the steps it is used in.

    "standard" is the model's own loss at the last layer; "aligned" the shared head at every exit;
    "cosine" and "cka" the last layer's loss and `beta` times the distance of the others to it;
    "classifiers" a head for each exit. `distillation` from the last exit goes with "aligned" and
    "classifiers". `schedule` "alternate"
    takes the model's own loss in odd optimiser steps, counted from 1, and this one in even ones;
    "always" takes this one in every step.

    >>> from layerscope.training import Objective
    >>> [Objective(schedule="alternate").trains_exits(step) for step in (1, 2, 3)]
    [False, True, False]
    """

    name: Name = "aligned"
    schedule: Schedule = "always"
    weights: ExitWeights = "linear"
    beta: float = 1.0
    distillation: float = 0.0

    def __post_init__(self) -> None:
        OneOf(get_args(Name)).take("objective", self.name)
        OneOf(get_args(Schedule)).take("schedule", self.schedule)
        Number(0).take("beta", self.beta)
        Number(0).take("distillation", self.distillation)
        if self.distillation and self.name not in ("aligned", "classifiers"):
            raise LayerscopeError(
                f"the objective {self.name!r} has no distillation: leave it out, or try `objective='aligned'`"
            )

    def trains_exits(self, step: int) -> bool:
        """Return whether optimiser step `step`, from 1 on, trains the exits; else it takes the model's own loss."""
        if self.name == "standard":
            return False
        return self.schedule == "always" or step % 2 == 0

    def loss(
        self,
        states: Sequence[Tensor],
        labels: Tensor,
        head: Any,
        layers: Sequence[int],
        heads: Sequence[nn.Module] = (),
        **options: Any,
    ) -> Tensor:
        """Return the loss over what the exits at `layers` give their heads; `options` are those of `aligned_loss`.

        `heads` are those of all exits but the last, for the objective "classifiers".
        """
        options |= {"weights": self.weights, "layers": layers}
        if self.name == "aligned" and not self.distillation:
            return aligned_loss(states, labels, head, **options)
        if self.name in ("aligned", "classifiers"):
            every = [*(heads or [head] * (len(states) - 1)), head]
            return classifiers_loss(states, labels, every, self.distillation, **options)
        similarity = linear_cka
        if self.name == "cosine":
            similarity = mean_cosine
        return similarity_loss(states, labels, head, similarity, self.beta, **options)


def mean_cosine(one: Tensor, two: Tensor) -> Tensor:
    """Return the mean cosine of the rows of two layers."""
    return nn.functional.cosine_similarity(one, two, dim=-1).mean()


def linear_cka(one: Tensor, two: Tensor) -> Tensor:
    """Return the biased linear CKA of the rows of two layers within the batch, with gradients.

    Source: Tracing Representation Progression, equation 3.
    """
    a = one - one.mean(0)
    b = two - two.mean(0)
    hsic_ab = (a.T @ b).square().sum()
    hsic_aa = (a.T @ a).square().sum()
    hsic_bb = (b.T @ b).square().sum()
    # clamped under the root, whose slope at 0 is infinite: one row alone is no variance
    tiny = torch.finfo(one.dtype).tiny
    return hsic_ab / (hsic_aa * hsic_bb).clamp_min(tiny).sqrt()


def similarity_loss(
    states: ExitStates,
    labels: Tensor,
    head: nn.Linear | Head,
    similarity: Callable[[Tensor, Tensor], Tensor],
    beta: float,
    weights: ExitWeights,
    layers: Sequence[int],
    **counting: Any,
) -> Tensor:
    """Return CE of the last exit + β Σ λ_ℓ (1 − similarity(h_ℓ, h_L)) over the exits before it, a scalar.

    `similarity` says how alike two sets of rows `[N, D]` are, 1 at most; else arguments as of
    `aligned_loss`.
    Source: Tracing Representation Progression, appendix B.3.
    """
    states, labels, weights, items = labelled_states(
        states, labels, layers, weights, **counting
    )
    loss = aligned_loss(states[-1:], labels, head, items=items)
    if len(states) == 1 or not len(labels):
        return loss
    distance: Any = 0.0
    # sums of squares overflow in half precision
    with torch.autocast(states[-1].device.type, enabled=False):
        *others, last = map(at_least_float32, states)
        for weight, other in zip(weights, others, strict=False):
            distance = distance + weight * (1 - similarity(other, last))
    return loss + beta * (len(labels) / items) * torch.as_tensor(distance)


def classifiers_loss(
    states: ExitStates,
    labels: Tensor,
    heads: Sequence[Head],
    distillation: float,
    weights: ExitWeights,
    layers: Sequence[int],
    **counting: Any,
) -> Tensor:
    """Return Σ λ_ℓ CE(head_ℓ(h_ℓ)) with a head for each exit, a scalar.

    With `distillation` δ each exit but the last adds λ_ℓ δ KL(p_L ‖ p_ℓ), the last exit's
    probabilities held fixed (Hinton et al. 2015). Further arguments are those of `aligned_loss`.
    """
    states, labels, weights, items = labelled_states(
        states, labels, layers, weights, **counting
    )
    if len(heads) != len(states):
        raise LayerscopeError(
            f"{len(states)} exits and {len(heads)} heads: give one for each"
        )
    logits = [
        logits_of(rows, head, labels) for head, rows in zip(heads, states, strict=True)
    ]
    teacher = logits[-1].detach().log_softmax(-1)
    total = logits[-1].new_zeros(())
    for weight, exit_logits in zip(weights, logits, strict=True):
        loss = nn.functional.cross_entropy(exit_logits, labels, reduction="sum")
        total = total + weight * loss
        if distillation and exit_logits is not logits[-1]:
            student = exit_logits.log_softmax(-1)
            divergence = nn.functional.kl_div(
                student, teacher, reduction="sum", log_target=True
            )
            total = total + weight * distillation * divergence
    return total / items
