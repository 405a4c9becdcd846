"""The loss over the exits of a model, and the steps of a training that use it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor, nn

from layerscope.core.errors import LayerscopeError
from layerscope.core.option_kinds import Number, OneOf, Whole
from layerscope.training.loss import aligned_loss, counted, logits_of, plain_weights, wide
from layerscope.training.options import Name, Schedule


@dataclass(frozen=True)
class Objective:
    """A loss over exits, and the steps it is used in.

    "standard" is the model's own loss at the last layer; "aligned" the shared head at every exit;
    "cosine" and "cka" the last layer's loss and `beta` times the distance of the others to it;
    "classifiers" a head for each exit, with `distillation` from the last. `schedule` "alternate"
    takes the model's own loss in odd optimiser steps, counted from 1, and this one in even ones;
    "always" takes this one in every step.

    LayerSkip (Elhoushi et al. 2024, section 4.1) is "aligned" with the weights "layerskip", where
    `beta` is its e_scale and `layer_dropout` its p_max. "rotating" trains every `rotation`-th of E
    exits, shifted by one at each step, "gradual" the last one first and another every T/2E of T
    steps. With `from_scratch` the dropout rises over the training, S(t) = 2^(t/(T−1)) − 1. Not in
    the paper: the last exit is trained in every step (as in the authors' code for torchtune), and
    the default rotation is E − 1, as in their trainings from scratch.

    >>> from layerscope.training import Objective
    >>> objective = Objective("aligned", schedule="rotating", rotation=2)
    >>> [objective.trained_in(step, 4, exits=5) for step in (1, 2, 3)]
    [(0, 2, 4), (1, 3, 4), (0, 2, 4)]
    """

    name: Name = "aligned"
    schedule: Schedule = "always"
    weights: str | Sequence[float] = "linear"
    beta: float = 1.0
    distillation: float = 0.0
    temperature: float = 1.0
    rotation: int | None = None
    layer_dropout: float = 0.0
    from_scratch: bool = False

    def __post_init__(self) -> None:
        OneOf(get_args(Name)).take("objective", self.name)
        OneOf(get_args(Schedule)).take("schedule", self.schedule)
        kinds = {
            "beta": Number(0),
            "distillation": Number(0),
            "temperature": Number(above=0),
            "layer_dropout": Number(0, below=1),
        }
        if self.rotation is not None:
            kinds["rotation"] = Whole(1)
        for name, kind in kinds.items():
            kind.take(name, getattr(self, name))
        if self.rotation is not None and self.schedule != "rotating":
            raise LayerscopeError(
                f"the schedule {self.schedule!r} has no rotation: leave it out, or try `schedule='rotating'`"
            )
        if self.name == "standard" and self.schedule in ("rotating", "gradual"):
            raise LayerscopeError(
                f"the objective 'standard' trains one exit, and the schedule {self.schedule!r} chooses among several: "
                "leave one of them out"
            )
        if self.distillation and self.name != "classifiers":
            raise LayerscopeError(
                f"the objective {self.name!r} has no distillation: leave it out, or try `objective='classifiers'`"
            )

    def trained_in(self, step: int, steps: int, exits: int) -> tuple[int, ...]:
        """Return which of the exits 0 … E − 1 optimiser step `step` of `steps`, from 1 on, trains.

        None of them is the model's own loss; else the last is always among them.
        """
        last, first, every = exits - 1, 0, 1
        if self.name == "standard" or (self.schedule == "alternate" and step % 2):
            return ()
        if self.schedule == "rotating":
            every = self.rotation or max(1, last)
            first = (step - 1) % every
        elif self.schedule == "gradual":
            first = max(0, last - 2 * exits * (step - 1) // max(1, steps))
        return (*range(first, last, every), last)

    def dropped_in(self, step: int, steps: int, depth: int) -> tuple[float, ...]:
        """Return the probability of each block to be skipped for a sample in a step: S(t) (2^(l/(L−1)) − 1) p_max.

        >>> from layerscope.training import Objective
        >>> [round(found, 3) for found in Objective(layer_dropout=0.1).dropped_in(1, 10, depth=3)]
        [0.0, 0.041, 0.1]
        """
        scale = rising(step - 1, steps - 1) if self.from_scratch else 1.0
        return tuple(
            self.layer_dropout * scale * rising(block, depth - 1) for block in range(depth)
        )

    def loss(
        self,
        states: Sequence[Tensor],
        labels: Tensor,
        head: Any,
        layers: Sequence[int],
        heads: nn.ModuleList | None = None,
        trained: Sequence[int] | None = None,
        **options: Any,
    ) -> Tensor:
        """Return the loss over what exits give their heads; `options` are those of `aligned_loss`.

        `layers` and `heads` are those of all exits, `states` of the `trained` ones (None: all).
        """
        which = range(len(layers)) if trained is None else trained
        # of the others beta is the regulariser's weight
        shared = self.name in (
            "aligned",
            "classifiers",
        )
        weights = plain_weights(layers, self.weights, self.beta if shared else 1.0)
        options |= {"weights": [weights[i] for i in which], "layers": [layers[i] for i in which]}
        if self.name == "aligned":
            return aligned_loss(states, labels, head, **options)
        if self.name == "classifiers":
            options |= {"distillation": self.distillation, "temperature": self.temperature}
            others = [] if heads is None else [heads[i] for i in which[:-1]]
            return classifiers_loss(states, labels, [*others, head], **options)
        similarity = mean_cosine if self.name == "cosine" else linear_cka
        return similarity_loss(states, labels, head, similarity, self.beta, **options)


def rising(at: int, last: int) -> float:
    """Return the exponential curve of LayerSkip, from 0 at 0 to 1 at `last`."""
    return float(2 ** (at / max(1, last)) - 1)


def mean_cosine(one: Tensor, two: Tensor) -> Tensor:
    """Return the mean cosine of the rows of two layers."""
    return nn.functional.cosine_similarity(one, two, dim=-1).mean()


def linear_cka(one: Tensor, two: Tensor) -> Tensor:
    """Return the biased linear CKA of the rows of two layers within the batch, with gradients.

    Source: Tracing Representation Progression, equation 3.
    """
    a, b = one - one.mean(0), two - two.mean(0)
    if len(a) < a.shape[-1]:  # the cheaper of the Grams and the features
        gram_a, gram_b = a @ a.T, b @ b.T
        cross, of_a, of_b = (gram_a * gram_b).sum(), gram_a.square().sum(), gram_b.square().sum()
    else:
        cross, of_a, of_b = (x.square().sum() for x in (a.T @ b, a.T @ a, b.T @ b))
    # clamped under the root, whose slope at 0 is infinite: one row alone is no variance
    return cross / (of_a * of_b).clamp_min(torch.finfo(one.dtype).tiny).sqrt()


def similarity_loss(
    states: Tensor | Sequence[Tensor],
    labels: Tensor,
    head: nn.Linear | Callable[[Tensor], Tensor],
    similarity: Callable[[Tensor, Tensor], Tensor] = mean_cosine,
    beta: float = 1.0,
    weights: str | Sequence[float] = "linear",
    layers: Sequence[int] | None = None,
    **counting: Any,
) -> Tensor:
    """Return CE of the last exit + β Σ λ_ℓ (1 − similarity(h_ℓ, h_L)) over the exits before it, a scalar.

    `similarity` says how alike two sets of rows `[N, D]` are, 1 at most; else arguments as of
    `aligned_loss`.
    Source: Tracing Representation Progression, appendix B.3.
    """
    rows, truth, shares = counted(states, labels, layers, weights, **counting)
    items = counting.get("items")
    loss = aligned_loss(rows[-1:], truth, head, items=items)
    if len(rows) == 1 or not len(truth):
        return loss
    with torch.autocast(
        rows[0].device.type, enabled=False
    ):  # sums of squares overflow in half precision
        *others, last = map(wide, rows)
        apart = [
            share * (1 - similarity(row, last)) for share, row in zip(shares, others, strict=False)
        ]
    share_of_items = 1.0 if items is None else len(truth) / items
    return loss + beta * share_of_items * torch.stack(apart).sum()


def classifiers_loss(
    states: Tensor | Sequence[Tensor],
    labels: Tensor,
    heads: Sequence[Callable[[Tensor], Tensor]],
    weights: str | Sequence[float] = "linear",
    layers: Sequence[int] | None = None,
    distillation: float = 0.0,
    temperature: float = 1.0,
    **counting: Any,
) -> Tensor:
    """Return Σ λ_ℓ CE(head_ℓ(h_ℓ)) with a head for each exit, a scalar.

    With `distillation` δ each exit but the last adds λ_ℓ δ T² KL(p_L ‖ p_ℓ) at temperature T, the
    last exit's probabilities held fixed (Hinton et al. 2015). Further arguments are those of
    `aligned_loss`.
    """
    rows, truth, shares = counted(states, labels, layers, weights, **counting)
    items = counting.get("items")
    if len(heads) != len(rows):
        raise LayerscopeError(f"{len(rows)} exits and {len(heads)} heads: give one for each")
    logits = [logits_of(row, head, truth) for head, row in zip(heads, rows, strict=True)]
    teacher = (logits[-1].detach() / temperature).log_softmax(-1)
    total = logits[-1].new_zeros(())
    for share, one in zip(shares, logits, strict=True):
        total = total + share * nn.functional.cross_entropy(one, truth, reduction="sum")
        if distillation and one is not logits[-1]:
            student = (one / temperature).log_softmax(-1)
            apart = nn.functional.kl_div(student, teacher, reduction="sum", log_target=True)
            total = total + share * distillation * temperature**2 * apart
    return total / (len(truth) if items is None else items)
