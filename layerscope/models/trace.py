"""Watch one small forward: what each module reads and gives."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor, nn

from layerscope.models.forward import (
    FAILURES,
    Args,
    Form,
    Inputs,
    Kwargs,
    forward,
    hidden_of,
    hooked,
)


@dataclass(frozen=True, eq=False)
class Call:
    """One call of one module during the probe: its hidden-state input and output.

    `sizes` are the norms of both states at that moment: they may be changed in place afterwards.
    """

    path: str
    module: nn.Module
    input: Tensor
    output: Tensor
    form: Form
    sizes: tuple[float, float] = (0.0, 0.0)

    @property
    def is_compound(self) -> bool:
        """Whether the module holds other modules."""
        return next(self.module.children(), None) is not None

    @cached_property
    def has_weights(self) -> bool:
        """Whether the module has parameters."""
        return next(self.module.parameters(), None) is not None

    @property
    def keeps_shape(self) -> bool:
        """Whether it gives what it was given: one vector a token or a sample, of the same width."""
        return self.input.shape == self.output.shape and self.input.ndim in (2, 3)

    @cached_property
    def can_be_block(self) -> bool:
        """Whether it may be a block: it keeps the shape of its state, and is no dropout or identity."""
        return self.keeps_shape and (
            self.has_weights or not same(self.input, self.output)
        )

    def is_inside(self, others: Iterable["Call"]) -> bool:
        """Return whether the module is a part of one of these."""
        return self.path.startswith(tuple(f"{other.path}." for other in others))

    def holds(self, others: Iterable["Call"]) -> bool:
        """Return whether one of these is a part of the module."""
        return any(other.path.startswith(f"{self.path}.") for other in others)


Calls = list[Call]


def trace(entry: nn.Module, prefix: str, inputs: Inputs) -> list[Call]:
    """Record every module call of one forward of `entry`, in the order in which they end."""
    calls: list[Call] = []
    entered: list[tuple[Tensor | None, float]] = []

    def before(_: nn.Module, args: Args, kwargs: Kwargs) -> None:
        hidden = hidden_of((args, kwargs))
        entered.append((hidden, _size(hidden)))

    def after(
        path: str, module: nn.Module, _: object, __: object, output: object
    ) -> None:
        read, size = entered.pop()
        state = hidden_of(output)
        if read is None or state is None:
            return
        form = Form.of(output)
        sizes = (size, _size(state))
        calls.append(Call(path, module, read, state, form, sizes))

    hooks = []
    for name, module in entry.named_modules():
        if name:
            hooks.append((module, before, partial(after, prefix + name)))
    with hooked(hooks):
        forward(entry, inputs)
    return calls


def _size(state: Tensor | None) -> float:
    """Return the norm of a state, 0 where there is none."""
    if state is None:
        return 0.0
    return float(state.float().norm())


def same(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors of a probe hold the same state (the same memory, or the same values)."""
    if a.shape != b.shape or a.device != b.device:
        return False
    # some models keep their stream in float32 and run blocks in half precision
    coarse = min(a.dtype, b.dtype, key=lambda dtype: dtype.itemsize)
    is_memory = a.data_ptr() == b.data_ptr() and a.dtype == b.dtype
    return is_memory or torch.equal(a.to(coarse), b.to(coarse))


@torch.no_grad()
def is_norm(call: Call) -> bool:
    """Return whether a module normalises its input: no matrix of weights, and blind to the input's scale."""
    if call.input.shape != call.output.shape:
        return False
    if any(weight.ndim > 1 for weight in call.module.parameters()):
        return False
    # each token by its own size: a massive one would hide the others under eps
    squares = call.input.float().pow(2).mean(-1, keepdim=True)
    size = squares.sqrt().clamp_min(1e-12)
    x = call.input / size.to(call.input.dtype)
    try:
        once = call.module(x)
        twice = call.module(2 * x)
    # one that reads something else besides, such as a table of positions
    except FAILURES:
        return False
    if not isinstance(once, Tensor) or once.shape != x.shape:
        return False
    fine = torch.isfinite(once) & torch.isfinite(twice)
    if not fine.any():
        # nothing left to judge by but its name: a broken norm is still the model's norm
        return "norm" in type(call.module).__name__.lower()
    once = once[fine]
    twice = twice[fine]
    change = (once - twice).abs().max()
    blind = bool(change <= 0.02 * once.abs().max())
    return blind and not same(once, x[fine])
