"""Watch one small forward: which module was given what, and gave what."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from layerscope.models.forward import Inputs, forward, hidden_of


@dataclass(frozen=True)
class Call:
    """One call of one module during the probe: its hidden-state input and output."""

    path: str
    module: nn.Module
    given: Tensor
    returned: Tensor
    outputs: int

    @property
    def keeps_shape(self) -> bool:
        """Whether it gives what it was given: one vector a token or a sample, of the same width."""
        return self.given.shape == self.returned.shape and self.given.ndim in (2, 3)


def trace(entry: nn.Module, prefix: str, inputs: Inputs) -> list[Call]:
    """Record every module call of one forward of `entry`, in the order in which they end."""
    calls: list[Call] = []

    def recorder(path: str) -> object:
        def record(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], output: object) -> None:
            given, returned = hidden_of((*args, *kwargs.values())), hidden_of(output)
            if given is not None and returned is not None:
                outputs = len(output) if isinstance(output, (tuple, list)) else 0
                calls.append(Call(path, module, given, returned, outputs))

        return record

    handles = [
        module.register_forward_hook(recorder(prefix + name), with_kwargs=True)  # type: ignore[arg-type]
        for name, module in entry.named_modules()
        if name
    ]
    try:
        forward(entry, inputs)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def same(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors of a probe hold the same state (the same memory, or the same values)."""
    if a.shape != b.shape:
        return False
    return a.data_ptr() == b.data_ptr() or (a.device == b.device and bool(torch.equal(a, b.to(a.dtype))))


@torch.no_grad()
def is_norm(call: Call) -> bool:
    """Return whether a module normalises its input: no matrix of weights, and blind to the input's scale."""
    if any(p.ndim > 1 for p in call.module.parameters()) or call.given.shape != call.returned.shape:
        return False
    size = call.given.float().pow(2).mean(-1, keepdim=True).sqrt().clamp_min(1e-12)
    x = call.given / size.to(call.given.dtype)  # each token by its own: a massive one would hide the others under eps
    once, twice = call.module(x), call.module(2 * x)
    if not isinstance(once, Tensor) or once.shape != x.shape:
        return False
    fine = torch.isfinite(once) & torch.isfinite(twice)
    if not fine.any():  # nothing left to judge by but its name: a broken norm is still the model's norm
        return "norm" in type(call.module).__name__.lower()
    once, twice = once[fine], twice[fine]
    return bool((once - twice).abs().max() <= 0.02 * once.abs().max()) and not same(once, x[fine])
