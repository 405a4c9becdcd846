"""The loss of many exits inside the forward of a model, where engines that wrap it see every weight it touches."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

from layerscope.errors import LayerscopeError
from layerscope.models.capture import evaluating
from layerscope.models.forward import Inputs, accepts
from layerscope.training.exits import Exits
from layerscope.training.objectives import Objective

Head = Callable[[Tensor], Tensor]
Score = Callable[[Callable[[int], Tensor], list[Head], Tensor], None]

TOLERANCE = 1e-3
HEADS = "exit_heads"


class ExitLoss:
    """An objective over a model's exits, computed by the model's `forward` while `on` and the model is training.

    The instance's `forward` is replaced, so that class, weights and their names stay what they are. Heads of the
    objective "classifiers" are copies of the model's own, in a member `exit_heads`.
    """

    def __init__(self, exits: Exits, objective: Objective, inputs: Inputs) -> None:
        """Attach to the model of `exits`; `inputs`, a small batch, tell whether its labels are shifted."""
        self.exits, self.objective, self.on = exits, objective, False
        self.score: Score | None = None
        """Where set, it is shown what every layer gives its head, and the labels, while the model is evaluated."""
        self.module: Any = exits.module
        self.every = exits.over_all(inputs)
        self.shift = _shifts(self.module, inputs)
        if objective.name == "classifiers":
            self.module.add_module(HEADS, self._heads())
        self._own = self.module.forward

        @functools.wraps(self._own)  # the Trainer reads from the signature which columns a model takes
        def forward(*args: Any, **named: Any) -> Any:
            return self._forward(*args, **named)

        self.module.forward = forward

    def detach(self) -> None:
        """Give the model its own `forward` back, and take what was added away."""
        del self.module.forward
        if hasattr(self.module, HEADS):
            delattr(self.module, HEADS)

    def _heads(self) -> nn.ModuleList:
        head = self.exits.head
        if head is None:
            raise LayerscopeError("this model's logits are not those of one linear layer: no classifier per layer")
        return nn.ModuleList(copy.deepcopy(head) for _ in self.exits.layers[:-1])

    def _forward(self, *args: Any, labels: Tensor | None = None, **named: Any) -> Any:
        if self.score is not None and not self.module.training and labels is not None:
            return self._scored(self.score, *args, labels=labels, **named)
        items = named.pop("num_items_in_batch", None)
        if not (self.on and self.module.training and labels is not None):
            given = named if items is None else {**named, "num_items_in_batch": items}
            return self._own(*args, labels=labels, **given)
        states = self.exits(lambda: self._own(*args, **named))
        head = self.exits.head
        loss = self.objective.loss(
            states,
            labels,
            head if head is not None else nn.Identity(),
            self.exits.layers,
            getattr(self.module, HEADS, None),
            shift=self.shift,
            items=items,
        )
        return ModelOutput(loss=loss)

    def _scored(self, score: Score, *args: Any, labels: Tensor, **named: Any) -> Any:
        """Return what the model itself gives, after `score` has seen every exit of the same pass."""
        bare = {key: value for key, value in named.items() if key != "num_items_in_batch"}
        output, read = self.every.reading(
            lambda: self._own(*args, labels=labels, **named), lambda: self._own(*args, **bare)
        )
        score(read, self._readers(), labels)
        return output

    def _readers(self) -> list[Head]:
        """Return what reads each layer from 1 on: its own head where it has one, else the model's."""
        shared = self.every.head or nn.Identity()
        own = dict(zip(self.exits.layers, getattr(self.module, HEADS, ()), strict=False))
        return [own.get(layer, shared) for layer in self.every.layers]


def _shifts(module: nn.Module, inputs: Inputs) -> bool:
    """Return whether the model's own loss compares position t with label t + 1, as its value tells."""
    named: dict[str, Any] = {key: value for key, value in inputs.named.items() if accepts(module, key)}
    with evaluating(module), torch.no_grad():
        logits: Tensor = module(**named).logits.float()
        shape = logits.shape[:-1]
        generator = torch.Generator().manual_seed(0)
        labels = torch.randint(0, logits.shape[-1], shape, generator=generator).to(logits.device)
        try:
            own = module(**named, labels=labels).loss.float()
        except Exception as error:
            raise LayerscopeError(
                f"{type(module).__name__} takes no class of each {'token' if len(shape) > 1 else 'sample'} as labels "
                f"({type(error).__name__}): aligned training takes models of classes or tokens"
            ) from error
    plain = nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
    if torch.isclose(own, plain, rtol=TOLERANCE):
        return False
    if len(shape) > 1 and shape[1] > 1:
        moved = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        if torch.isclose(own, moved, rtol=TOLERANCE):
            return True
    raise LayerscopeError(
        f"the loss of {type(module).__name__} is no cross-entropy of classes or tokens: set problem_type to "
        "single_label_classification, or train another model"
    )
