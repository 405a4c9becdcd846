"""Watch the blocks of one small forward from inside: every state that passes between their modules."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.models.forward import Inputs, forward, hidden_in, hidden_of, hooked
from layerscope.models.stack import Stack


@dataclass(frozen=True)
class Spot:
    """Where a state is seen in a block: at the n-th call of a module, what it is given or what it returns."""

    path: str
    call: int
    is_input: bool


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
    def sites(self) -> dict[str, tuple[int, ...]]:
        """Layers at which each site is found, the sites in the order of the block that has most of them."""
        layers: dict[str, list[int]] = {}
        for tap in self.taps:
            layers.setdefault(tap.site, []).append(tap.layer)
        orders = [
            [tap.site for tap in self.taps if tap.layer == layer]
            for layer in {tap.layer for tap in self.taps}
        ]
        fullest = max(orders, key=len, default=[])
        return {site: tuple(layers[site]) for site in dict.fromkeys([*fullest, *layers])}


def as_state(hidden: Tensor, shape: torch.Size) -> Tensor | None:
    """Return what a module gets or gives as a state [B, T, D], from [B·T, D] as well; None where it is none."""
    if hidden.shape == shape:
        return hidden
    flat = hidden.ndim == 2 and len(shape) == 3 and hidden.shape == (shape[0] * shape[1], shape[2])
    return hidden.reshape(shape) if flat else None


@dataclass(frozen=True)
class State:
    """One value [B, T, D] of a probe, and where it is seen, in order."""

    value: Tensor
    seen: list[Spot]

    @property
    def spot(self) -> Spot:
        """Where it is taken: at the last of the outermost modules that return it, else where one is first given it."""
        returned = [spot for spot in reversed(self.seen) if not spot.is_input]
        return min(returned, key=lambda spot: spot.path.count(".")) if returned else self.seen[0]


@dataclass(frozen=True)
class Step:
    """One call of a module inside a block that gets and gives a state, both by number."""

    module: nn.Module
    spot: Spot
    input: int
    output: int


@dataclass
class BlockRun:
    """One execution of a block: its arguments, and its states in the order in which they appear; 0 is its input."""

    block: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    states: list[State] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    last: int = 0
    """Number of the block's output."""

    def number(self, hidden: Tensor | None, spot: Spot | None) -> int | None:
        """Return the number of a state, a new one where it was not seen before; None of what is no state."""
        if hidden is not None and self.states:
            hidden = as_state(hidden, self.states[0].value.shape)
        if hidden is None:
            return None
        same = (i for i, state in enumerate(self.states) if torch.equal(state.value, hidden))
        number = next(same, len(self.states))
        if number == len(self.states):
            self.states.append(State(hidden.clone(), []))  # a module may change it in place
        if spot is not None:
            self.states[number].seen.append(spot)
        return number


def watch(module: nn.Module, stack: Stack, inputs: Inputs) -> list[BlockRun]:
    """Run `module` once and return what was seen inside every block execution, in order."""
    runs: list[BlockRun] = []
    calls: dict[str, int] = defaultdict(int)
    entered: list[tuple[Spot, int | None]] = []
    # a model may call one module both in its blocks and beside them, as a shared norm
    inside = False

    def start(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal inside
        inside = True
        calls.clear()
        runs.append(BlockRun(block, args, kwargs))
        runs[-1].number(hidden_in(args, kwargs), None)

    def before(path: str, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if inside:
            spot = Spot(path, calls[path], True)
            calls[path] += 1
            entered.append((spot, runs[-1].number(hidden_in(args, kwargs), spot)))

    def after(child: nn.Module, _: object, __: object, output: object) -> None:
        if inside:
            spot, number = entered.pop()
            spot = replace(spot, is_input=False)
            returned = runs[-1].number(hidden_of(output), spot)
            if number is not None and returned is not None:
                runs[-1].steps.append(Step(child, spot, number, returned))

    def end(_: nn.Module, __: object, ___: object, output: object) -> None:
        nonlocal inside
        inside = False
        runs[-1].last = runs[-1].number(hidden_of(output), None) or 0

    blocks = [module.get_submodule(path) for path in dict.fromkeys(stack.blocks)]
    # once each, as several blocks may share one
    named = dict.fromkeys(each for block in blocks for each in block.named_modules() if each[0])
    of_blocks = [(block, start, end) for block in blocks]
    of_children = [(child, partial(before, name), after) for name, child in named]
    with hooked([*of_blocks, *of_children]):
        forward(module.get_submodule(stack.entry), inputs)
    return runs


@torch.inference_mode()
def replay(
    run: BlockRun, hand: dict[tuple[str, int], Tensor], take: Spot, *, others: bool = False
) -> Tensor:
    """Run a block again, hand its modules (and itself, if `others`) other states, and return one spot's state."""
    calls: dict[str, int] = defaultdict(int)
    taken: list[Tensor] = []

    def see(spot: Spot, hidden: Tensor | None) -> None:
        if spot == take and hidden is not None:
            taken.append(hidden.clone())

    def before(path: str, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = calls[path]
        calls[path] += 1
        if (path, call) in hand:
            args, kwargs = _swapped(args, kwargs, hand[path, call])
        see(Spot(path, call, True), hidden_in(args, kwargs))
        return args, kwargs

    def after(path: str, _: nn.Module, __: object, ___: object, output: object) -> None:
        see(Spot(path, calls[path] - 1, False), hidden_of(output))

    paths = {take.path, *(path for path, _ in hand)}
    hooks = [(run.block.get_submodule(p), partial(before, p), partial(after, p)) for p in paths]
    start = run.states[0].value
    args, kwargs = _swapped(run.args, run.kwargs, start.clone(), others=others)
    with hooked(hooks):
        run.block(*args, **kwargs)
    return taken[-1].reshape(start.shape)


def _swapped(
    args: tuple[Any, ...], kwargs: dict[str, Any], state: Tensor, *, others: bool = False
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with another state instead of the one it is given."""
    hidden = hidden_in(args, kwargs)
    assert hidden is not None

    def other(value: Any) -> Any:
        if value is hidden:
            return state.reshape(hidden.shape)
        is_state = isinstance(value, Tensor) and value.is_floating_point() and value.ndim == 3
        return value.roll(1, -1) if others and is_state else value

    return tuple(map(other, args)), {name: other(value) for name, value in kwargs.items()}
