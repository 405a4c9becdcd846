"""The loss of many exits inside the forward of a model, where engines that wrap it see every weight it touches."""

import copy
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

from layerscope.core.errors import LayerscopeError
from layerscope.models import LayeredModel
from layerscope.models.capture import evaluating
from layerscope.models.forward import Inputs, accepts
from layerscope.models.weights import ExitHeads, heads_of
from layerscope.training.exits import Exits, layer_dropout
from layerscope.training.loss import IGNORED, aligned_loss
from layerscope.training.objectives import Objective

Head = Callable[[Tensor], Tensor]
Score = Callable[[Callable[[int], Tensor], list[Head], Tensor], None]

HEADS = "exit_heads"


class ExitLoss:
    """The loss of a training step, computed by the model's `forward`: of the exits `on`, else of the last layer.

    The last layer's is computed here too, divided by the number of items even where the model's own
    code takes the mean of a batch. Heads of the objective "classifiers" are copies of the model's
    own, in a member `exit_heads`. Blocks are skipped with the probabilities `rates`. Where `score`
    is set, it gets what every layer gives its head, and the labels, while the model is evaluated.
    """

    def __init__(self, exits: Exits, objective: Objective, inputs: Inputs) -> None:
        """Attach to the model of `exits`; `inputs`, a small batch, show whether its labels are shifted."""
        self.exits, self.objective = exits, objective
        self.on, self.rates = tuple[int, ...](), tuple[float, ...]()
        self.score: Score | None = None
        self.module: Any = exits.module
        every = len(exits.layers) == exits.stack.depth
        self.every = exits if every else Exits(exits.model, inputs)
        self.shift = _shifts(self.module, inputs)
        if objective.layer_dropout:
            exits.stack.check_plain("skipped layers")
        if objective.name == "classifiers":
            if exits.head is None:
                raise LayerscopeError(
                    "this model's logits are not those of one linear layer: no classifier per layer"
                )
            heads = nn.ModuleList(copy.deepcopy(exits.head) for _ in exits.layers[:-1])
            self.module.add_module(HEADS, heads)
        self._plain = self.module.forward
        kinds = {parameter.kind for parameter in inspect.signature(self._plain).parameters.values()}
        self._takes_items = inspect.Parameter.VAR_KEYWORD in kinds

        # the Trainer reads from the signature which columns a model takes
        @functools.wraps(self._plain)
        def forward(*args: Any, **named: Any) -> Any:
            return self._forward(*args, **named)

        self.module.forward = forward

    @property
    def head(self) -> Head:
        """What makes logits of what an exit gives."""
        return self.exits.head or nn.Identity()

    @property
    def own(self) -> dict[int, nn.Module]:
        """The heads of the layers before the last exit, none where all read one."""
        return dict(zip(self.exits.layers, getattr(self.module, HEADS, ()), strict=False))

    def own_heads(self) -> ExitHeads | None:
        """Return the weights of these heads as they are now."""
        if self.exits.head_path is None or not self.own:
            return None
        return heads_of(self.exits.head_path, self.own)

    def detach(self) -> None:
        """Give the model its own `forward` back, and remove what was added."""
        del self.module.forward
        if hasattr(self.module, HEADS):
            delattr(self.module, HEADS)

    def _forward(self, *args: Any, labels: Tensor | None = None, **named: Any) -> Any:
        items = named.pop("num_items_in_batch", None)
        if labels is None and self.on:
            raise LayerscopeError("this batch has no labels: give what the exits are to predict")
        inputs = named | {"labels": labels}
        parts = Parts((inputs,)) if args else parts_of(self.exits.model, inputs)
        if labels is None or not self.module.training:
            return self._evaluated(parts, labels, items, *args)
        calls = [partial(self._plain, *args, **_unlabelled(part)) for part in parts.inputs]
        with layer_dropout(self.module, self.exits.stack, self.rates):
            loss = self._loss(calls, parts, labels, items)
        return ModelOutput(loss=loss)

    def _loss(self, calls: Sequence[Any], parts: "Parts", labels: Tensor, items: Any) -> Tensor:
        """Return the loss of the exits `on`, or of the last layer, as the calls of the parts of a batch give them."""
        heads: nn.ModuleList | None = getattr(self.module, HEADS, None)
        options: dict[str, Any] = {"shift": self.shift, "items": items}
        if self.on:
            reads = zip(*(self.exits(call, self.on) for call in calls), strict=True)
            states = [parts.joined(read) for read in reads]
            loss = self.objective.loss(
                states, labels, self.head, self.exits.layers, heads, self.on, **options
            )
        else:
            last = parts.joined([self.exits.last(call) for call in calls])
            loss = aligned_loss([last], labels, self.head, **options)
        for index, head in enumerate(heads or ()):
            if index not in self.on:  # DDP waits for the gradient of every weight
                loss = loss + 0.0 * sum(parameter.sum() for parameter in head.parameters())
        return loss

    def _evaluated(self, parts: "Parts", labels: Tensor | None, items: Any, *args: Any) -> Any:
        """Return what the model itself gives, after `score`, where set, has seen every exit of the same pass."""
        whole = parts.order is None
        counted = whole and items is not None and self._takes_items
        more = {"num_items_in_batch": items} if counted else {}
        calls = [partial(self._plain, *args, **part, **more) for part in parts.inputs]
        if self.score is None or labels is None:
            outputs: Sequence[Any] = [call() for call in calls]
        else:
            bare = [partial(self._plain, *args, **_unlabelled(part)) for part in parts.inputs]
            outputs, reads = zip(*map(self.every.reading, calls, bare), strict=True)
            head = self.every.head or nn.Identity()
            heads: list[Head] = [self.own.get(layer, head) for layer in self.every.layers]
            self.score(lambda index: parts.joined([read(index) for read in reads]), heads, labels)
        if whole:
            return outputs[0]
        logits = parts.joined([output.logits for output in outputs])
        if labels is None:
            return ModelOutput(logits=logits)
        loss = aligned_loss([logits], labels, nn.Identity(), shift=self.shift, items=items)
        return ModelOutput(loss=loss, logits=logits)


@dataclass(frozen=True)
class Parts:
    """The inputs of each part of a batch, and the order that puts their rows, one after another, back as they came."""

    inputs: tuple[dict[str, Any], ...]
    order: Tensor | None = None
    width: int = 0

    def joined(self, outputs: Sequence[Tensor]) -> Tensor:
        """Return what the parts gave, `[b, …]` each, as that of the batch; missing tokens are 0."""
        if self.order is None:
            return outputs[0]
        if outputs[0].ndim >= 3:
            outputs = [
                nn.functional.pad(one, (0, 0, 0, self.width - one.shape[1])) for one in outputs
            ]
        whole = torch.cat([*outputs])
        return whole[self.order.to(whole.device)]


def parts_of(model: LayeredModel, named: dict[str, Any]) -> Parts:
    """Return the parts of a batch whose samples may be padded to the longest of them; the others are never padded."""
    mask = named.get("attention_mask")
    if (
        mask is None or mask.ndim != 2 or model.padding
    ):  # nothing is read from the device unless it must be
        return Parts((named,))
    lengths = mask.sum(1)
    if model.joins(int(lengths.min()), mask.shape[1]):
        return Parts((named,))

    def part_of(value: Any, rows: Tensor) -> Any:
        if not isinstance(value, Tensor) or not value.ndim or len(value) != len(mask):
            return value
        return value[rows, : lengths[rows[0]]] if value.shape[:2] == mask.shape else value[rows]

    parts = [(lengths == length).nonzero()[:, 0] for length in lengths.unique()]
    inputs = tuple({name: part_of(value, rows) for name, value in named.items()} for rows in parts)
    return Parts(inputs, torch.cat(parts).argsort(), mask.shape[1])


def _unlabelled(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in inputs.items() if name != "labels"}


@torch.no_grad()
def _shifts(module: nn.Module, inputs: Inputs) -> bool:
    """Return whether the model's own loss compares position t with label t + 1, as labels of position 0 alone show."""
    named = {key: value for key, value in inputs.named.items() if accepts(module, key)}
    kind = type(module).__name__
    with evaluating(module):
        logits: Tensor = module(**named).logits
        shape = logits.shape[:-1]
        generator = torch.Generator().manual_seed(0)
        labels = torch.randint(0, logits.shape[-1], shape, generator=generator).to(logits.device)
        try:
            loss: Tensor = module(**named, labels=labels).loss
        except Exception as error:
            raise LayerscopeError(
                f"{kind} takes no class of each {'token' if len(shape) > 1 else 'sample'} as labels "
                f"({type(error).__name__}): aligned training takes models of classes or tokens"
            ) from error
        shift = False
        if len(shape) > 1 and shape[1] > 1:
            first = torch.full_like(labels, IGNORED)
            first[:, 0] = labels[:, 0]
            of_first = module(**named, labels=first).loss
            shift = not (bool(torch.isfinite(of_first)) and bool(of_first > 0))
    wanted = aligned_loss([logits], labels, nn.Identity(), shift=shift)
    near = 1e-3 if loss.dtype.itemsize > 2 else 2e-2
    if not torch.isclose(loss.to(wanted.dtype), wanted, rtol=near):
        raise LayerscopeError(
            f"the loss of {kind} is not a cross-entropy of classes or tokens: set problem_type to "
            "single_label_classification, or train another model"
        )
    return shift
