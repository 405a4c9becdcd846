"""What stands in the place of a model where its states are read: nothing runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from layerscope.core import spans
from layerscope.inputs.states import States
from layerscope.models.capture import Visit
from layerscope.models.encode import TextEncoder
from layerscope.models.forward import Inputs
from layerscope.models.layered import LayeredModel
from layerscope.models.loaded import Loaded
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
        if self.tokens:
            return super().lengths(samples)
        return [1] * len(samples)

    def batch(self, samples: Sequence[Any]) -> Inputs:
        """Return the samples as one right-padded batch."""
        inputs = Inputs({})
        if self.tokens:
            inputs = super().batch(samples)
        numbers = torch.tensor([sample.number for sample in samples])
        return replace(inputs, named={**inputs.named, NUMBER: numbers})


@dataclass(frozen=True)
class StatesModel(LayeredModel):
    """Layers that are read from `states`; `stack` ends with the last of them."""

    states: States = field(kw_only=True)

    @property
    def whole(self) -> bool:
        """Whether the last of them is known to be the model's last layer."""
        return bool(self.states.about.get("depth") == self.stack.depth)

    @property
    def layers(self) -> tuple[int, ...]:
        """The numbers of the layers that are there."""
        return self.states.layers

    @property
    def size(self) -> str:
        """Which layers there are, and how wide they are."""
        return f"{spans(self.layers, 'layer')} ({self.stack.width} wide)"

    def run(self, inputs: Inputs, visit: Visit, until: int | None = None) -> None:
        """Visit every layer of a batch."""
        by_sample = self.states.read(inputs.named[NUMBER].tolist())
        by_layer = zip(*by_sample, strict=True)
        for layer, layer_states in zip(self.layers, by_layer, strict=True):
            tokens = pad_sequence(list(layer_states), batch_first=True)
            visit(layer, "raw", tokens.to(self.device, torch.float32))


def states_model(states: States, device: torch.device) -> StatesModel:
    """Return a model of states [tokens, D] or pooled ones."""
    last = states.layers[-1]
    name = states.about.get("model", states.path.stem)
    loaded = Loaded(nn.Identity(), name=name)
    blocks = tuple(map(str, range(1, last + 1)))
    has_tokens = states.tokens is not None
    rank = 2 + has_tokens
    return StatesModel(
        loaded,
        StatesEncoder(None, loaded.module, UNCUT, tokens=has_tokens),
        Stack("model", "", blocks, None, states.width, "states"),
        ("model",),
        device,
        (),
        causal=has_tokens and states.about.get("causal", True),
        rank=rank,
        states=states,
    )
