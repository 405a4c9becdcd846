"""What a truncated model must give: the full model's states and predictions at one layer, on a few samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.models import LayeredModel
from layerscope.models.capture import capture, evaluating
from layerscope.models.forward import Inputs, accepts, forward, hidden_of, tensors_in
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
    batches = tuple(model.encoder.batch([sample]).to(model.device) for sample in samples)
    with evaluating(model.module):
        states: list[Tensor] = []
        raw: list[Tensor] = []
        for inputs in batches:
            found = _layer(model, inputs, layer)
            states.append(found[model.final])
            raw.append(found["raw"])
        last = _layer(model, batches[0], model.stack.depth)[model.final]
        shown = holds(forward(base_of(model.module, model.stack), batches[0]), last)
        logits = None if model.lens is None else tuple(map(_logits_by(model), raw, batches))
    return Expected(layer, batches, tuple(states), logits, shown)


@torch.inference_mode()
def states_of(module: nn.Module, stack: Stack, batches: Sequence[Inputs]) -> list[Tensor]:
    """Return the last layer's states of a model on each batch, after its final norm where it has one."""
    found: list[Tensor] = []
    for inputs in batches:
        states: dict[str, Tensor] = {}

        def keep(layer: int, site: str, tokens: Tensor, states: dict[str, Tensor] = states) -> None:
            if layer == stack.depth:
                states[site] = tokens.clone()

        capture(module, stack, inputs, keep)
        found.append(states.get("normed", states["raw"]))
    return found


@contextmanager
def ending_at(module: nn.Module, stack: Stack, layer: int) -> Iterator[None]:
    """Within, the blocks after a layer hand their input on: the model's own code then reads that layer."""
    calls = 0

    def hand_on(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        nonlocal calls
        calls += 1
        if (calls - 1) % stack.depth < layer:
            return None
        given, returned = hidden_of((*args, *kwargs.values())), hidden_of(output)
        if not isinstance(output, tuple):
            return given
        return tuple(given if value is returned else value for value in output)

    blocks = [module.get_submodule(path) for path in dict.fromkeys(stack.blocks)]
    handles = [block.register_forward_hook(hand_on, with_kwargs=True) for block in blocks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def base_of(module: nn.Module, stack: Stack) -> nn.Module:
    """Return the module whose plain output is the states: the tower that is run, or the model without its head."""
    entry = module.get_submodule(stack.entry)
    base = getattr(entry, "base_model", entry)
    main = str(getattr(entry, "main_input_name", "input_ids"))
    return (
        base if isinstance(base, nn.Module) and accepts(base, main) else entry
    )  # a model's base may be a part of it that reads states


def holds(output: object, states: Tensor) -> bool:
    """Return whether a model's output shows these states among its tensors."""
    return any(agrees(tensor, states) for tensor in tensors_in(output))


def agrees(one: Tensor, two: Tensor, tolerance: float | None = None) -> bool:
    """Return whether two tensors hold the same numbers, to 1e-5 in float32, in half precision to two steps of it."""
    if one.shape != two.shape:
        return False
    close = tolerance or close_in(one.dtype)
    return bool(torch.allclose(one.float(), two.to(one.device).float(), rtol=close, atol=close))


def close_in(dtype: torch.dtype, exact: float = EXACT, steps: int = 2) -> float:
    """Return how far numbers of this dtype may be apart: `exact`, or so many steps of it where these are coarser."""
    return max(exact, steps * torch.finfo(dtype).eps)


def difference(one: Tensor, two: Tensor) -> float:
    """Return the largest difference between two tensors, infinite where their shapes differ."""
    if one.shape != two.shape:
        return float("inf")
    return float((one.float() - two.to(one.device).float()).abs().max())


def _layer(model: LayeredModel, inputs: Inputs, layer: int) -> dict[str, Tensor]:
    states: dict[str, Tensor] = {}

    def keep(at: int, site: str, tokens: Tensor) -> None:
        if at == layer:
            states[site] = tokens.clone()

    model.run(inputs, keep, until=layer)
    return states


def _logits_by(model: LayeredModel) -> Any:
    lens = model.lens
    assert lens is not None

    def read(states: Tensor, inputs: Inputs) -> Tensor:
        if lens.kind == "pooled":
            return lens.sample_logits(states, inputs)
        flat = states.flatten(0, 1)
        return torch.cat(list(lens.token_logits(flat, inputs))).view(*states.shape[:2], -1)

    return read
