"""Watch the blocks of one small forward from inside: every state that passes between their modules."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.models.forward import Inputs, forward, hidden_of
from layerscope.models.stack import Stack
from layerscope.models.sublayers.taps import Place, as_state


@dataclass(frozen=True)
class State:
    """One value [B, T, D] of a probe, and the places where it is seen, in order."""

    value: Tensor
    seen: list[Place]

    @property
    def is_returned(self) -> bool:
        """Whether some module returns it."""
        return any(not place.given for place in self.seen)

    @property
    def place(self) -> Place:
        """Where it is taken: at the last of the outermost modules that return it, else where one is first given it."""
        returned = [place for place in reversed(self.seen) if not place.given]
        return min(returned, key=lambda place: place.path.count(".")) if returned else self.seen[0]


@dataclass(frozen=True)
class Step:
    """One call of a module inside a block that gets and gives a state, both told by their numbers."""

    module: nn.Module
    place: Place
    given: int
    returned: int


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

    def number(self, value: object, place: Place | None) -> int | None:
        """Return the number of a state, a new one where it was not seen before; None of what is no state."""
        hidden = hidden_of(value)
        if hidden is not None and self.states:
            hidden = as_state(hidden, self.states[0].value.shape)
        if hidden is None:
            return None
        at = next((i for i, state in enumerate(self.states) if torch.equal(state.value, hidden)), len(self.states))
        if at == len(self.states):
            self.states.append(State(hidden.clone(), []))  # a module may change it in place
        if place is not None:
            self.states[at].seen.append(place)
        return at


class _Watcher:
    """Hooks that write down what passes inside the block that runs; what runs outside of blocks is left alone.

    A model may call one module both in its blocks and beside them: a shared norm, a rotary embedding.
    """

    def __init__(self) -> None:
        self.runs: list[BlockRun] = []
        self.inside = False
        self.calls: dict[str, int] = defaultdict(int)
        self.entered: list[tuple[Place, int | None]] = []

    def start(self, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.inside = True
        self.calls.clear()
        self.runs.append(BlockRun(block, args, kwargs))
        self.runs[-1].number((*args, *kwargs.values()), None)

    def before(self, path: str) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if not self.inside:
                return
            place = Place(path, self.calls[path], True)
            self.calls[path] += 1
            self.entered.append((place, self.runs[-1].number((*args, *kwargs.values()), place)))

        return hook

    def after(self, child: nn.Module, _: tuple[Any, ...], output: object) -> None:
        if not self.inside:
            return
        place, given = self.entered.pop()
        place = replace(place, given=False)
        returned = self.runs[-1].number(output, place)
        if given is not None and returned is not None:
            self.runs[-1].steps.append(Step(child, place, given, returned))

    def end(self, _: nn.Module, __: tuple[Any, ...], output: object) -> None:
        self.inside = False
        self.runs[-1].last = self.runs[-1].number(output, None) or 0


def watch(module: nn.Module, stack: Stack, inputs: Inputs) -> list[BlockRun]:
    """Run `module` once and return what was seen inside every block execution, in order."""
    watcher, handles = _Watcher(), []
    blocks = [module.get_submodule(path) for path in dict.fromkeys(stack.blocks)]
    for block in blocks:
        handles.append(block.register_forward_pre_hook(watcher.start, with_kwargs=True))
        handles.append(block.register_forward_hook(watcher.end))
    # once each, as several blocks may share one
    for name, child in dict.fromkeys(named for block in blocks for named in block.named_modules() if named[0]):
        handles.append(child.register_forward_pre_hook(watcher.before(name), with_kwargs=True))
        handles.append(child.register_forward_hook(watcher.after))
    try:
        forward(module.get_submodule(stack.entry), inputs)
    finally:
        for handle in handles:
            handle.remove()
    return watcher.runs


@torch.inference_mode()
def replay(
    run: BlockRun, hand: dict[tuple[str, int], Tensor], take: list[Place], *, others: bool = False
) -> list[Tensor]:
    """Run a block again, hand calls of its modules other states, and return what is then seen at these places.

    `others` changes every further state the block is given (an encoder's), not the one that it hands on.
    """
    calls: dict[str, int] = defaultdict(int)
    taken: dict[Place, Tensor] = {}
    shape = run.states[0].value.shape

    def before(path: str) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            call = calls[path]
            calls[path] += 1
            if (path, call) in hand:
                args, kwargs = _swapped(args, kwargs, hand[path, call])
            if (place := Place(path, call, True)) in take:
                taken[place] = _hidden(args, kwargs).reshape(shape).clone()
            return args, kwargs

        return hook

    def after(path: str) -> Any:
        def hook(_: nn.Module, __: tuple[Any, ...], output: object) -> None:
            place, hidden = Place(path, calls[path] - 1, False), hidden_of(output)
            if place in take and hidden is not None:
                taken[place] = hidden.reshape(shape).clone()

        return hook

    handles = []
    for path in {path for path, _ in hand} | {place.path for place in take}:
        child = run.block.get_submodule(path)
        handles.append(child.register_forward_pre_hook(before(path), with_kwargs=True))
        handles.append(child.register_forward_hook(after(path)))
    try:
        args, kwargs = _swapped(run.args, run.kwargs, run.states[0].value.clone(), others=others)
        run.block(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return [taken[place] for place in take]


def _hidden(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    hidden = hidden_of((*args, *kwargs.values()))
    assert hidden is not None
    return hidden


def _swapped(
    args: tuple[Any, ...], kwargs: dict[str, Any], state: Tensor, *, others: bool = False
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with another state in the place of the one it is given."""
    hidden = _hidden(args, kwargs)

    def other(value: Any) -> Any:
        if value is hidden:
            return state.reshape(hidden.shape)
        further = others and isinstance(value, Tensor) and value.is_floating_point() and value.ndim == 3
        return value.roll(1, -1) if further else value

    return tuple(map(other, args)), {name: other(value) for name, value in kwargs.items()}
