"""What a model cut to some of its blocks must give, and how close to it numbers must be."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.core import spans
from layerscope.models import Inputs, LayeredModel, Stack, accepts, evaluating
from layerscope.models.capture import capture
from layerscope.models.forward import forward, tensors_in
from layerscope.models.lens import skipping

EXACT = 1e-5
"""Tolerance in float32, of a value or relative to it; in half precision two of its steps."""


@dataclass(frozen=True)
class Expected:
    """The full model by some of its blocks, on a few samples run alone: normed `states` [1, T, D], its head's `logits`.

    `kept` are these blocks, counted from 0; those between them hand their input on, and those after
    them do not run. `shown`: whether the model's plain output shows its last states at all.
    """

    kept: tuple[int, ...]
    inputs: Sequence[Inputs]
    states: Sequence[Tensor]
    logits: Sequence[Tensor | None]
    shown: bool

    @property
    def name(self) -> str:
        """What the states are of, in words."""
        gaps = gaps_in(self.kept)
        without = f" without {spans(gaps, 'block')}" if gaps else ""
        return f"layer {self.kept[-1] + 1} of the full model{without}"


def gaps_in(kept: Sequence[int]) -> list[int]:
    """Return the blocks before the last one kept that are not kept, counted from 1."""
    return [block for block in range(1, kept[-1] + 1) if block - 1 not in kept]


def kept_without(blocks: Collection[int], depth: int) -> tuple[int, ...]:
    """Return the blocks, counted from 0, that are left without some, which are counted from 1."""
    return tuple(block for block in range(depth) if block + 1 not in blocks)


@torch.inference_mode()
def expected_at(
    model: LayeredModel, kept: Sequence[int], samples: Sequence[Any]
) -> Expected:
    """Return what a model gives on each of these samples by some of its blocks alone."""
    module = model.module
    stack = model.stack
    lens = model.head
    layer = kept[-1] + 1
    batches = [model.encoder.batch([sample]).to(model.device) for sample in samples]
    states = []
    logits: list[Tensor | None] = []
    with evaluating(module):
        for inputs in batches:
            with skipping(module, stack, gaps_in(kept)):
                by_site = states_at(module, stack, inputs, layer)
            states.append(by_site[model.final])
            head_logits = None
            if lens is not None:
                head_logits = lens.sequence_logits(by_site["raw"], inputs)
            logits.append(head_logits)
        last = last_states(module, stack, batches[0])
        output = forward(base_of(module, stack), batches[0])
    shown = any(agrees(tensor, last) for tensor in tensors_in(output))
    return Expected(tuple(kept), batches, states, logits, shown)


def states_at(
    module: nn.Module, stack: Stack, inputs: Inputs, layer: int
) -> dict[str, Tensor]:
    """Return the states of one layer by site: raw, and normed where the model has a final norm."""
    states: dict[str, Tensor] = {}

    def keep(at: int, site: str, tokens: Tensor) -> None:
        if at == layer:
            states[site] = tokens.clone()

    capture(module, stack, inputs, keep, until=layer)
    return states


@torch.inference_mode()
def last_states(module: nn.Module, stack: Stack, inputs: Inputs) -> Tensor:
    """Return the last layer's states, after the final norm where there is one."""
    states = states_at(module, stack, inputs, stack.depth)
    return states.get("normed", states["raw"])


def base_of(module: nn.Module, stack: Stack) -> nn.Module:
    """Return the module whose plain output is the states: the tower that is run, or the model without its head."""
    entry = module.get_submodule(stack.entry)
    base = getattr(entry, "base_model", entry)
    main = str(getattr(entry, "main_input_name", "input_ids"))
    # a model's base may be a part of it that reads states
    if isinstance(base, nn.Module) and accepts(base, main):
        return base
    return entry


def close_in(dtype: torch.dtype, exact: float = EXACT, steps: int = 2) -> float:
    """Return how far numbers of this dtype may be apart: `exact`, or `steps` of its steps where these are coarser."""
    return max(exact, steps * torch.finfo(dtype).eps)


def agrees(one: Tensor, two: Tensor, *tolerance: Any) -> bool:
    """Return whether two tensors hold the same numbers, as close as `close_in` says of a dtype and this tolerance."""
    if one.shape != two.shape:
        return False
    close = close_in(one.dtype, *tolerance)
    other = two.to(one.device).float()
    return torch.allclose(one.float(), other, rtol=close, atol=close)


def difference(one: Tensor | None, two: Tensor) -> float:
    """Return the largest difference between two tensors, infinite where there is none or their shapes differ."""
    if one is None or one.shape != two.shape:
        return float("inf")
    other = two.to(one.device).float()
    return float((one.float() - other).abs().max())
