"""What the exits of a model are asked for in a step of training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from torch import Tensor, nn

from layerscope.core.errors import LayerscopeError, choices
from layerscope.training.loss import aligned_loss
from layerscope.training.rivals import classifiers_loss, linear_cka, mean_cosine, similarity_loss
from layerscope.training.settings import Name, Schedule


@dataclass(frozen=True)
class Objective:
    """A loss over exits, and the steps it is used in.

    "standard" is the model's own loss at the last layer; "aligned" the shared head at every exit; "cosine" and "cka"
    the last layer's loss and `beta` times the distance of the others to it; "classifiers" a head for each exit, with
    `distillation` from the last. `schedule` "alternate" takes the model's own loss in odd optimiser steps, counted
    from 1, and this one in even ones; "always" takes this one in every step.

    >>> from layerscope.training import Objective
    >>> objective = Objective("aligned", schedule="alternate")
    >>> [objective.counts_in(step) for step in (1, 2, 3, 4)]
    [False, True, False, True]
    """

    name: Name = "aligned"
    schedule: Schedule = "always"
    weights: str | Sequence[float] = "linear"
    beta: float = 1.0
    distillation: float = 0.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what does not exist."""
        for value, kind, known in (
            (self.name, "objective", get_args(Name)),
            (self.schedule, "schedule", get_args(Schedule)),
        ):
            if value not in known:
                raise LayerscopeError(f"{kind} {value!r} does not exist{choices(str(value), known)}")
        for name in ("beta", "distillation", "temperature"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0 or (name == "temperature" and value == 0):
                raise LayerscopeError(
                    f"{name} is {value}: give a number {'above' if name == 'temperature' else 'from'} 0"
                )

        if self.distillation and self.name != "classifiers":
            raise LayerscopeError(f"distillation is of the objective 'classifiers', not {self.name!r}: leave it out")

    def counts_in(self, step: int) -> bool:
        """Return whether optimiser step `step`, from 1 on, uses this loss and not the model's own."""
        return self.name != "standard" and (self.schedule == "always" or step % 2 == 0)

    def loss(
        self,
        states: Sequence[Tensor],
        labels: Tensor,
        head: Any,
        layers: Sequence[int],
        heads: nn.ModuleList | None = None,
        **options: Any,
    ) -> Tensor:
        """Return the loss over what each exit gives its head; `options` are those of `aligned_loss`."""
        options |= {"weights": self.weights, "layers": layers}
        if self.name == "aligned":
            return aligned_loss(states, labels, head, **options)
        if self.name == "classifiers":
            every = [*(heads or ()), head]
            return classifiers_loss(
                states, labels, every, distillation=self.distillation, temperature=self.temperature, **options
            )
        similarity = mean_cosine if self.name == "cosine" else linear_cka
        return similarity_loss(states, labels, head, similarity, self.beta, **options)
