"""Run one forward and hand over the state of every layer as it appears."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from layerscope.models.forward import Inputs, forward, hidden_of
from layerscope.models.stack import Stack, tokens_read
from layerscope.models.sublayers.taps import Place, Tap, as_state

Visit = Callable[[int, str, Tensor], None]
"""Called as visit(layer, site, tokens[B, T, D]), layers 0..L in order, site "raw" then, with a norm, "normed".

Sub-layers, where they are asked for, come before the layer that their block gives. A visit may run the model itself
with its blocks bypassed: of that nothing is visited."""


class _Enough(Exception):
    """Ends a forward after the layer that was asked for: the head never runs."""


def capture(
    module: nn.Module,
    stack: Stack,
    inputs: Inputs,
    visit: Visit,
    until: int | None = None,
    taps: Sequence[Tap] = (),
) -> None:
    """Run `module` once and visit every layer's state, raw and (where the model has a final norm) normed.

    `taps` are sub-layers to be visited as well. Stops after layer `until` (default: the last), so that nothing
    after it is computed. Hooks are removed whatever happens, and the model is left as it was.
    """
    last = stack.depth if until is None else until
    norm = module.get_submodule(stack.norm) if stack.norm else None
    length = tokens_read(module, stack, inputs)
    calls = 0
    layers = _Layers(visit, norm, length, stack.turned)
    inside = _Inside(lambda layer, site, state: visit(layer, site, _own(state, length)), taps)

    def before(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        if layers.visited:
            return
        state = _state((*args, *kwargs.values()))
        if calls == 0:
            layers.show(0, state)
            if last == 0:
                raise _Enough
        inside.enter(calls + 1, state.shape)

    def after(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], output: object) -> None:
        nonlocal calls
        if layers.visited:
            return
        calls += 1
        state = _state(output)
        layers.show(calls, _state((*args, *kwargs.values())) + state if stack.added else state)
        if calls == last:
            raise _Enough

    blocks = {path: module.get_submodule(path) for path in dict.fromkeys(stack.blocks)}
    first = [*blocks.values()][: None if taps else 1]
    handles = [block.register_forward_pre_hook(before, with_kwargs=True) for block in first]
    ends = [module.get_submodule(path) for path in dict.fromkeys(stack.ends)]
    handles += [end.register_forward_hook(after, with_kwargs=True) for end in ends]
    try:
        handles += inside.hooks(blocks, stack)
        forward(module.get_submodule(stack.entry), inputs)
    except _Enough:
        return
    finally:
        for handle in handles:
            handle.remove()
    raise RuntimeError(f"the model ran {calls} blocks where its probe ran {stack.depth}")


class _Layers:
    """Visits the layers, raw and normed; `visited` while one is, when the model may run in the visit itself."""

    def __init__(self, visit: Visit, norm: nn.Module | None, length: int | None, turned: bool) -> None:
        self.visit, self.norm, self.length, self.turned, self.visited = visit, norm, length, turned, False

    def show(self, layer: int, state: Tensor) -> None:
        self.visited = True
        hidden = _own(state.transpose(0, 1) if self.turned else state, self.length)
        self.visit(layer, "raw", hidden)
        if self.norm is not None:
            self.visit(layer, "normed", self.norm(hidden))
        self.visited = False


class _Inside:
    """Visits the sub-layers of the block that runs: each at its own call of its module."""

    def __init__(self, visit: Visit, taps: Sequence[Tap]) -> None:
        self.visit = visit
        self.taps = {(tap.layer, tap.place): tap.site for tap in taps}
        self.layer, self.shape = 0, torch.Size()
        self.calls: dict[str, int] = defaultdict(int)

    def enter(self, layer: int, shape: torch.Size) -> None:
        """Begin a block's execution, which counts its modules' calls anew: a shared block runs several times."""
        self.layer, self.shape = layer, shape
        self.calls.clear()

    def hooks(self, blocks: dict[str, nn.Module], stack: Stack) -> Iterator[RemovableHandle]:
        """Set hooks on the modules that show a sub-layer, and yield them one by one."""
        wanted = ((blocks[stack.blocks[layer - 1]].get_submodule(place.path), place.path) for layer, place in self.taps)
        for child, path in dict.fromkeys(wanted):  # once each, as several blocks may share one
            yield child.register_forward_pre_hook(self._before(path), with_kwargs=True)
            yield child.register_forward_hook(self._after(path))

    def _before(self, path: str) -> Any:
        def hook(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            call = self.calls[path]
            self.calls[path] += 1
            self._show(Place(path, call, True), (*args, *kwargs.values()))

        return hook

    def _after(self, path: str) -> Any:
        def hook(_: nn.Module, __: object, output: object) -> None:
            self._show(Place(path, self.calls[path] - 1, False), output)

        return hook

    def _show(self, place: Place, value: object) -> None:
        site = self.taps.get((self.layer, place))
        if site is None:
            return
        state = as_state(_state(value), self.shape)
        if state is None:
            raise RuntimeError(f"{place.path} gave no state where its probe gave one")
        self.visit(self.layer, site, state)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put every module into evaluation mode (no dropout, no random masking) and afterwards back as it was."""
    training = [child for child in module.modules() if child.training]
    config = getattr(module, "config", None)
    masking = getattr(config, "mask_ratio", None)  # ViTMAE masks patches at random even in evaluation
    module.eval()
    if masking:
        config.mask_ratio = 0.0  # type: ignore[union-attr]
    try:
        yield
    finally:
        if masking:
            config.mask_ratio = masking  # type: ignore[union-attr]
        for child in training:
            child.training = True


def _own(state: Tensor, length: int | None) -> Tensor:
    """Return a text's own tokens: a model may fill it up to whole windows."""
    return state[:, :length] if state.ndim == 3 else state


def _state(value: object) -> Tensor:
    hidden = hidden_of(value)
    if hidden is None:
        raise RuntimeError("a block gave no hidden state")
    return hidden
