"""What a truncated model must give: the full model's states and predictions at one layer, on a few samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.models import LayeredModel
from layerscope.models.capture import capture, evaluating
from layerscope.models.forward import Inputs, accepts, forward, tensors_in
from layerscope.models.stack import Stack

EXACT = 1e-5
"""Tolerance in float32, of a value or relative to it; in half precision two of its steps."""


@dataclass(frozen=True)
class Expected:
    """The full model at one layer, on a few samples that were each run alone.

    `states` [1, T, D] are those after the final norm, where there is one; `logits` what the model's own head reads from
    them, where it has one; `shown`: whether the model's plain output shows its last states at all.
    """

    layer: int
    inputs: tuple[Inputs, ...]
    states: tuple[Tensor, ...]
    logits: tuple[Tensor, ...] | None
    shown: bool


@torch.inference_mode()
def expected_at(model: LayeredModel, layer: int, samples: Sequence[Any]) -> Expected:
    """Return what layer `layer` of a model gives on each of these samples."""
    module, stack, lens = model.module, model.stack, model.lens
    batches = tuple(model.encoder.batch([sample]).to(model.device) for sample in samples)
    with evaluating(module):
        found = [states_at(module, stack, inputs, layer) for inputs in batches]
        shown = holds(forward(base_of(module, stack), batches[0]), last_states(module, stack, batches[0]))
        logits = None
        if lens is not None:
            logits = tuple(
                lens.sequence_logits(states["raw"], inputs) for states, inputs in zip(found, batches, strict=True)
            )
    return Expected(layer, batches, tuple(states[model.final] for states in found), logits, shown)


def states_at(module: nn.Module, stack: Stack, inputs: Inputs, layer: int) -> dict[str, Tensor]:
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
    return base if isinstance(base, nn.Module) and accepts(base, main) else entry


def holds(output: object, states: Tensor) -> bool:
    """Return whether a model's output shows these states among its tensors."""
    return any(agrees(tensor, states) for tensor in tensors_in(output))


def agrees(one: Tensor, two: Tensor, tolerance: float | None = None) -> bool:
    """Return whether two tensors hold the same numbers, to 1e-5 in float32, in half precision to two steps of it."""
    close = tolerance or close_in(one.dtype)
    return one.shape == two.shape and torch.allclose(one.float(), two.to(one.device).float(), rtol=close, atol=close)


def close_in(dtype: torch.dtype, exact: float = EXACT, steps: int = 2) -> float:
    """Return how far numbers of this dtype may be apart: `exact`, or `steps` of its steps where these are coarser."""
    return max(exact, steps * torch.finfo(dtype).eps)


def difference(one: Tensor, two: Tensor) -> float:
    """Return the largest difference between two tensors, infinite where their shapes differ."""
    if one.shape != two.shape:
        return float("inf")
    return float((one.float() - two.to(one.device).float()).abs().max())
