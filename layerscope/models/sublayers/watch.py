"""Watch the blocks of one small forward from inside: every state that passes between their modules."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from layerscope.models.forward import (
    FAILURES,
    Args,
    Hooks,
    Inputs,
    Kwargs,
    forward,
    hidden_of,
    hooked,
    state_of,
)
from layerscope.models.stack import Stack


@dataclass(frozen=True)
class Spot:
    """Where a state is seen in a block: at the n-th call of a module, what it is given or what it returns."""

    path: str
    call: int
    is_input: bool = False


WHOLE = Spot("", 0)
"""What the block itself returns."""


@dataclass(frozen=True)
class Tap:
    """One sub-layer of the model: its site, the layer whose block it is in, and where it is seen there."""

    site: str
    layer: int
    spot: Spot


@dataclass(frozen=True)
class Sublayers:
    """Every sub-layer that was found, in the order of a forward, and notes on those that could not be identified."""

    taps: tuple[Tap, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def sites(self) -> dict[str, list[int]]:
        """Layers at which each site is found."""
        layers: dict[str, list[int]] = {}
        for tap in self.taps:
            layers.setdefault(tap.site, []).append(tap.layer)
        return layers


def as_state(value: object, shape: torch.Size) -> Tensor | None:
    """Return what a module gets or gives as a state [B, T, D], from [B·T, D] as well; None where it is none."""
    hidden = hidden_of(value)
    if hidden is None or hidden.shape == shape:
        return hidden
    if hidden.shape == (shape[:-1].numel(), shape[-1]):
        return hidden.reshape(shape)
    return None


def spot_hooks(
    modules: Iterable[tuple[str, nn.Module]],
    calls: Counter[str],
    see: Callable[[Spot, Any], Any],
) -> Iterator[Hooks]:
    """Yield hooks that show what modules inside blocks are given and return, by their paths; `calls` counts them.

    What `see` returns for a module's arguments takes their place.
    """

    def before(path: str, _: nn.Module, args: Args, kwargs: Kwargs) -> Any:
        calls[path] += 1
        spot = Spot(path, calls[path] - 1, is_input=True)
        return see(spot, (args, kwargs))

    def after(path: str, _: nn.Module, __: object, ___: object, output: object) -> None:
        see(Spot(path, calls[path] - 1), output)

    # once each, as several blocks may share one
    for path, module in dict.fromkeys(modules):
        if path:
            yield module, partial(before, path), partial(after, path)


@dataclass(frozen=True)
class State:
    """One value [B, T, D] of a probe, and where it is seen, in order."""

    value: Tensor
    seen: list[Spot]

    @property
    def spot(self) -> Spot:
        """Where it is taken: at the last of the outermost modules that return it, else where one is first given it."""
        returned = [spot for spot in reversed(self.seen) if not spot.is_input]
        if not returned:
            return self.seen[0]
        return min(returned, key=lambda spot: spot.path.count("."))


@dataclass(frozen=True)
class Step:
    """One call of a module inside a block that gets and gives a state, both by number."""

    path: str
    input: int
    output: int


@dataclass
class BlockRun:
    """One execution of a block: its arguments, and its states in the order in which they appear; 0 is its input."""

    block: nn.Module
    args: Args
    kwargs: Kwargs
    states: list[State]
    steps: list[Step] = field(default_factory=list)
    last: int = 0
    """Number of the block's output."""

    def number(self, value: Tensor, spot: Spot) -> int:
        """Return the number of a state that is seen at a spot, a new one where it was not seen before."""
        for number, state in enumerate(self.states):
            if torch.equal(state.value, value):
                state.seen.append(spot)
                return number
        self.states.append(State(value, [spot]))
        return len(self.states) - 1

    def again(self, state: Tensor, *, others: bool = False) -> object:
        """Return what the block gives for another state, and if `others` for other arguments beside it."""
        # a block may change its input in place
        args, kwargs = swapped(self.args, self.kwargs, state.clone(), others=others)
        return self.block(*args, **kwargs)


@contextmanager
def block_runs(module: nn.Module, stack: Stack) -> Iterator[list[BlockRun]]:
    """Within, keep every execution of a block as it begins."""
    runs: list[BlockRun] = []

    def start(block: nn.Module, args: Args, kwargs: Kwargs) -> None:
        first = State(state_of((args, kwargs)).clone(), [])
        runs.append(BlockRun(block, args, kwargs, [first]))

    blocks = stack.block_modules(module)
    with hooked((block, start, None) for block in blocks):
        yield runs


def watch(module: nn.Module, stack: Stack, inputs: Inputs) -> list[BlockRun]:
    """Run `module` once, and every block execution again by itself, and return what is seen inside each, in order."""
    with block_runs(module, stack) as runs:
        forward(module.get_submodule(stack.entry), inputs)
    for run in runs:
        with suppress(*FAILURES):  # a block that cannot be run by itself shows nothing
            _fill(run)
    return runs


def _fill(run: BlockRun) -> None:
    """Number what is seen inside a block, and say which modules turn which state into which."""
    numbers: dict[Spot, int] = {}
    for spot, value in replay(run, {}).items():
        numbers[spot] = run.number(value, spot)
        entered = numbers.get(replace(spot, is_input=True))
        if entered is not None and not spot.is_input:
            run.steps.append(Step(spot.path, entered, numbers[spot]))
    run.last = numbers.get(WHOLE, 0)


@torch.inference_mode()
def replay(
    run: BlockRun, hand: dict[Spot, Tensor], *, others: bool = False
) -> dict[Spot, Tensor]:
    """Run a block again and return the states that pass between its modules, by where they are seen, in order.

    Modules are handed other states at the spots of `hand`, and the block itself other arguments
    beside its state if `others`.
    """
    start = run.states[0].value
    seen: dict[Spot, Tensor] = {}

    def see(spot: Spot, value: Any) -> Any:
        if spot in hand:
            args, kwargs = value
            value = swapped(args, kwargs, hand[spot])
        state = as_state(value, start.shape)
        if state is not None:
            seen[spot] = state.clone()  # a module may change it in place
        return value

    with hooked(spot_hooks(run.block.named_modules(), Counter(), see)):
        output = run.again(start, others=others)
    see(WHOLE, output)
    return seen


def swapped(
    args: Args, kwargs: Kwargs, state: Tensor, *, others: bool = False
) -> tuple[Args, Kwargs]:
    """Return the arguments of a call with another state instead of the one it is given."""
    hidden = state_of((args, kwargs))

    def other(value: Tensor) -> Tensor:
        if value is hidden:
            return state.reshape(hidden.shape)
        if others and value.is_floating_point() and value.ndim == 3:
            return value.roll(1, -1)
        return value

    arguments: tuple[Args, Kwargs]
    arguments = tree_map_only(Tensor, other, (args, kwargs))
    return arguments
