"""The loss of many exits inside the forward of a model, where engines that wrap it see every weight it touches."""

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

from layerscope.core import LayerscopeError
from layerscope.models import ExitHeads, Inputs, LayeredModel, accepts, evaluating
from layerscope.models.weights import heads_of
from layerscope.training.exits import Call, Exits
from layerscope.training.loss import IGNORED, Head, aligned_loss, check_classes
from layerscope.training.objectives import Objective

Score = Callable[[Callable[[int], Tensor], Sequence[Head], Tensor], None]

HEADS = "exit_heads"


class ExitLoss:
    """The loss of a training step, computed by the model's `forward`: of the exits where `on`, else of the last layer.

    The last layer's is computed here too, divided by the number of items even where the model's own
    code takes the mean of a batch. Heads of the objective "classifiers" are copies of the model's
    own, in a member `exit_heads`. Where `score` is set, it gets what every layer gives its head,
    and the labels, while the model is evaluated.
    """

    def __init__(self, exits: Exits, objective: Objective, inputs: Inputs) -> None:
        """Attach to the model of `exits`; `inputs`, a small batch, show whether its labels are shifted."""
        self.exits = exits
        self.objective = objective
        self.on = False
        self.score: Score | None = None
        self.module: Any = exits.module
        self.every = exits
        if len(exits.layers) < exits.model.depth:
            self.every = Exits(exits.model, inputs)
        self.shift = _shifts(self.module, inputs)
        config: Any = getattr(self.module, "config", None)
        if hasattr(config, "get_text_config"):
            config = config.get_text_config()
        vocabulary = getattr(config, "vocab_size", None)
        self.language_model = self.shift or vocabulary == exits.classes
        if objective.name == "classifiers":
            if exits.head is None:
                raise LayerscopeError(
                    "this model's logits are not those of one linear layer: no classifier per layer"
                )
            before_last = exits.layers[:-1]
            heads = nn.ModuleList(copy.deepcopy(exits.head) for _ in before_last)
            self.module.add_module(HEADS, heads)
        self._plain = self.module.forward

        # the Trainer reads from the signature which columns a model takes, and a bound method
        # cannot be given another one
        stand_in = partial(self._forward)
        self.module.forward = update_wrapper(stand_in, self._plain)

    @property
    def head(self) -> Head:
        """What makes logits of what an exit gives."""
        return self.exits.head or nn.Identity()

    @property
    def heads(self) -> dict[int, nn.Module]:
        """The heads of the layers before the last exit, none where all read one."""
        heads = getattr(self.module, HEADS, ())
        return dict(zip(self.exits.layers, heads, strict=False))

    def detach(self) -> ExitHeads:
        """Give the model its own `forward` back, remove the heads that were added, and return their weights, if any."""
        heads = heads_of(self.exits.head_path or "", self.heads)
        del self.module.forward
        if hasattr(self.module, HEADS):
            delattr(self.module, HEADS)
        return heads

    def _forward(
        self,
        *args: Any,
        labels: Tensor | None = None,
        num_items_in_batch: Any = None,
        **named: Any,
    ) -> Any:
        """Stand in for the model's own forward: of a batch with labels the loss is made here."""
        if labels is None and self.on:
            raise LayerscopeError(
                "this batch has no labels: give what the exits are to predict"
            )
        _refuse_padding(self.exits.model, named.get("attention_mask"))
        bare = partial(self._plain, *args, **named)
        if labels is None:
            return bare()
        if self.module.training:
            return ModelOutput(loss=self._loss(bare, labels, num_items_in_batch))
        call = partial(bare, labels=labels)
        if self.score is None:
            return call()
        # before the model's own loss, which fails in its own way
        check_classes(labels[labels != IGNORED], self.exits.classes)
        output, read = self.every.reading(call, bare)
        heads = [self.heads.get(layer, self.head) for layer in self.every.layers]
        self.score(read, heads, labels)
        return output

    def _loss(self, call: Call, labels: Tensor, items: Any) -> Tensor:
        """Return the loss of the exits, or of the last layer, of one call of the model without labels."""
        heads = [*self.heads.values()]
        options: dict[str, Any] = {"shift": self.shift, "items": items}
        if self.on:
            states = self.exits(call)
            layers = self.exits.layers
            return self.objective.loss(
                states, labels, self.head, layers, heads, **options
            )
        last = self.exits.last(call)
        loss = aligned_loss([last], labels, self.head, **options)
        for head in heads:  # DDP waits for the gradient of every weight
            loss = loss + 0.0 * sum(parameter.sum() for parameter in head.parameters())
        return loss


def _refuse_padding(model: LayeredModel, mask: Tensor | None) -> None:
    """Raise where padding, which changes this model's states, is in a batch."""
    # nothing is read from the device in vain
    if mask is None or mask.ndim != 2 or model.padding:
        return
    shortest = int(mask.sum(1).min())
    if shortest < mask.shape[1]:
        raise LayerscopeError(
            "padding changes this model's states: give batches of one length, as with `batch_size=1` and "
            "`gradient_accumulation`"
        )


@torch.no_grad()
def _shifts(module: nn.Module, inputs: Inputs) -> bool:
    """Return whether the model's own loss compares position t with label t + 1, as labels of position 0 alone show."""
    named = {
        name: value for name, value in inputs.named.items() if accepts(module, name)
    }
    with evaluating(module):
        logits: Tensor = module(**named).logits
        *shape, classes = logits.shape
        generator = torch.Generator().manual_seed(0)
        labels = torch.randint(classes, shape, generator=generator).to(logits.device)
        try:
            loss: Tensor = module(**named, labels=labels).loss
        except Exception as error:
            raise LayerscopeError(
                f"{type(module).__name__} takes no class of each sample or token as labels ({type(error).__name__}): "
                "aligned training takes models of classes or tokens"
            ) from error
        shift = False
        if len(shape) > 1 and shape[1] > 1:
            first = torch.full_like(labels, IGNORED)
            first[:, 0] = labels[:, 0]
            first_loss = float(module(**named, labels=first).loss)
            # of no label at all it is 0 or NaN
            shift = not 0 < first_loss < math.inf
    expected = aligned_loss([logits], labels, nn.Identity(), shift=shift)
    rtol = 1e-3 if loss.dtype.itemsize > 2 else 2e-2
    if not torch.isclose(loss.to(expected.dtype), expected, rtol=rtol):
        raise LayerscopeError(
            f"the loss of {type(module).__name__} is not a cross-entropy of classes or tokens: set problem_type to "
            "single_label_classification, or train another model"
        )
    return shift
