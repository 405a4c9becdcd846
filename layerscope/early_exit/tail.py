"""The head of a classifier on states of any layer, with as little of the model run for it as it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.early_exit.layout import Layout, Left, Place, changed, front_of
from layerscope.models.forward import Inputs, forward
from layerscope.models.lens import Lens, logits_of, replaced
from layerscope.models.stack import Stack
from layerscope.models.trace import same, trace


@dataclass
class FrontShapes:
    """What the modules before the first block gave in one forward: shapes, and tensors that are no sample's own."""

    layout: Layout
    given: dict[str, Any] = field(default_factory=dict)

    def keep(self, name: str, output: Any) -> None:
        """Keep of a module's output what it takes to stand in for it."""

        def light(path: Place, tensor: Tensor) -> Any:
            axes = self.layout.axes.get(path)
            return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta") if axes and axes.rows else tensor

        self.given[name] = changed(output, light, ("front", name))


@dataclass(frozen=True)
class Step:
    """One module that follows the last block, on what the one before it gives, or on its first token alone."""

    path: str
    first: bool


@dataclass(frozen=True)
class Tail:
    """What follows the last block, on the states of rows that are left.

    Where that is one module after another on one tensor (a norm, a pooler, a head), these `steps` are called. Else it
    is the model's own code, the blocks bypassed; with `skips` the modules before the first block do not run for it (a
    convolution over sound costs as much as blocks), but hand on something of the shape they gave. Layers that have a
    head of their own, in `heads` under their number, are read by that in the place of the one whose path is `head`.
    """

    lens: Lens
    layout: Layout
    skips: bool
    steps: tuple[Step, ...] = ()
    heads: nn.ModuleDict = field(default_factory=nn.ModuleDict)
    head: str = ""

    def __call__(self, states: Tensor, inputs: Inputs, left: Left, front: FrontShapes, layer: int) -> Tensor:
        """Return the float32 logits [b, K] of states [b, T, D] of a layer.

        `inputs` is the whole batch, of which `left` says what is left, `front` what `FrontShapes` kept of it.
        """
        if str(layer) not in self.heads:
            return self._logits(states, inputs, left, front)
        with replaced({self.lens.module.get_submodule(self.head): self.heads[str(layer)].forward}):
            return self._logits(states, inputs, left, front)

    def _logits(self, states: Tensor, inputs: Inputs, left: Left, front: FrontShapes) -> Tensor:
        if self.steps:
            for step in self.steps:
                states = self.lens.module.get_submodule(step.path)(states[:, 0] if step.first else states)
            return states.float()
        with skipped(self.lens.module, front, left, states) if self.skips else nullcontext():
            return self.lens.sample_logits(states, self.layout.inputs(inputs, left))


def find_steps(module: nn.Module, stack: Stack, inputs: Inputs) -> tuple[Step, ...]:
    """Return the modules by which a model comes from its last block's states to its logits; none where it does more.

    Told by one forward: the first reads those states, each what the one before it gives, and the last gives the logits.
    """
    beside = set(front_of(module, stack.blocks))
    calls = trace(module, "", inputs)
    last = max(i for i, call in enumerate(calls) if call.path == stack.blocks[-1])
    value, steps = calls[last].returned, []
    for call in calls[last + 1 :]:
        if call.path not in beside:
            continue
        first = not same(call.given, value)
        if first and not (value.ndim == 3 and same(call.given, value[:, 0])):
            return ()
        steps.append(Step(call.path, first))
        value = call.returned
    logits = logits_of(forward(module, inputs))
    return tuple(steps) if logits is not None and same(value, logits) else ()


@contextmanager
def skipped(module: nn.Module, front: FrontShapes, left: Left, states: Tensor) -> Iterator[None]:
    """Within, the modules before the first block give what has the shape of what they gave, for the rows left."""

    def blank(path: Place, tensor: Tensor) -> Tensor:
        shape = front.layout.shape(path, tensor.shape, left)
        if shape is None:  # the same for all samples
            return front.layout.cut(path, tensor, left) if path in front.layout.axes else tensor
        # zeros of its own, never the states: some models write into what comes before their blocks
        return torch.zeros(shape, dtype=tensor.dtype, device=states.device)

    def stand_in(name: str) -> Callable[..., Any]:
        return lambda *_, **__: changed(front.given[name], blank, ("front", name))

    with replaced({module.get_submodule(name): stand_in(name) for name in front.given}):
        yield
