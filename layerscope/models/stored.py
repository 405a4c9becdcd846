"""What stands in the place of a model where its states are read: nothing runs but its final norm and head, if given."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from layerscope.core.errors import LayerscopeError, spans
from layerscope.inputs.states import States
from layerscope.models.capture import Visit
from layerscope.models.encode import TextEncoder
from layerscope.models.forward import Inputs
from layerscope.models.layered import LayeredModel
from layerscope.models.loading import Loaded
from layerscope.models.probe import find_layers
from layerscope.models.stack import Stack

NUMBER = "sample"
"""Of each row of a batch, its sample among the states."""
UNCUT = 1 << 31


@dataclass
class StatesEncoder(TextEncoder):
    """Token ids as they lie beside the states, and which sample they are of; of pooled states that alone."""

    tokens: bool = True

    def lengths(self, samples: Any) -> list[int]:
        """Return each sample's number of tokens, 1 of a pooled one."""
        return super().lengths(samples) if self.tokens else [1 for _ in samples]

    def batch(self, samples: Sequence[Any]) -> Inputs:
        """Return the samples as one right-padded batch."""
        inputs = super().batch(samples) if self.tokens else Inputs({})
        numbers = torch.tensor([sample.number for sample in samples])
        return replace(inputs, named={**inputs.named, NUMBER: numbers})


@dataclass(frozen=True)
class StatesModel(LayeredModel):
    """Layers that are read from `states`; `stack` ends with the last of them.

    `whole` is whether that is known to be the model's last.
    """

    states: States = field(kw_only=True)
    whole: bool = False

    @property
    def layers(self) -> tuple[int, ...]:
        """The numbers of the layers that are there."""
        return self.states.layers

    @property
    def size(self) -> str:
        """Which layers there are, and how wide they are."""
        return f"{spans(self.layers, 'layer')} ({self.stack.width} wide)"

    def run(self, inputs: Inputs, visit: Visit, until: int | None = None) -> None:
        """Visit every layer of a batch, and with a final norm what it makes of each."""
        by_sample = self.states.read(inputs.named[NUMBER].tolist())
        norm = self.module.get_submodule(self.stack.norm) if self.stack.norm else None
        for i, layer in enumerate(self.layers):
            layer_states = [
                states[i].to(self.device, torch.float32) for states in by_sample
            ]
            tokens: Tensor = pad_sequence(layer_states, batch_first=True)
            visit(layer, "raw", tokens)
            if norm is not None:
                visit(layer, "normed", norm(tokens))


def states_model(
    states: States, head: Loaded | None, device: torch.device
) -> StatesModel:
    """Return a model of states [tokens, D] or pooled ones; with a `head`, which reads tokens, that has norm and lens.

    Raises `LayerscopeError` for a head of another width or of fewer layers.
    """
    if head is not None:
        return _with_head(states, head, device)
    last = states.layers[-1]
    loaded = Loaded(nn.Identity(), name=states.about.get("model", states.path.stem))
    blocks = tuple(map(str, range(1, last + 1)))
    has_tokens = states.tokens is not None
    return StatesModel(
        loaded,
        StatesEncoder(None, loaded.module, UNCUT, tokens=has_tokens),
        Stack("model", "", blocks, None, states.width, "states"),
        ("model",),
        device,
        (),
        causal=has_tokens and states.about.get("causal", True),
        rank=3 if has_tokens else 2,
        states=states,
        whole=states.about.get("depth") == last,
    )


def _with_head(states: States, head: Loaded, device: torch.device) -> StatesModel:
    """Return the model of token states that go through a model's final norm and head."""
    if states.tokens is None or states.about.get("site") == "normed":
        held = "pooled ones" if states.tokens is None else "those after the norm"
        raise LayerscopeError(
            f"`head` reads tokens before the final norm, and {states.path} holds {held}: leave it out"
        )
    model, last = find_layers(head, "tensor", [states.tokens[0]]), states.layers[-1]
    stack = model.stack
    if stack.width != states.width or stack.depth < last:
        raise LayerscopeError(
            f"the states go to layer {last}, {states.width} wide, and {head.name} has layers 0..{stack.depth}, "
            f"{stack.width} wide: give the head of their own model"
        )
    if model.lens is None and stack.norm is None:
        raise LayerscopeError(
            f"{head.name} has no final norm, and no head over its tokens: leave `head` out"
        )
    about = vars(model) | {
        "encoder": StatesEncoder(None, head.module, UNCUT),
        "stack": stack.until(last),
    }
    return StatesModel(**about, states=states, whole=stack.depth == last)
