"""Watch one small forward: what each module reads and gives, and which calls follow one another as blocks do."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor, nn

from layerscope.models.forward import (
    FAILURES,
    Form,
    Inputs,
    forward,
    hidden_in,
    hidden_of,
    hooked,
    tensors_in,
)


@dataclass(frozen=True, eq=False)
class Call:
    """One call of one module during the probe: its hidden-state input and output, and every state that it was given.

    `number` counts the calls in the order in which they end.
    """

    path: str
    module: nn.Module
    input: Tensor
    output: Tensor
    form: Form
    read: tuple[Tensor, ...] = ()
    number: int = 0

    @property
    def parent(self) -> str:
        """The path of the module that holds this one."""
        return self.path.rpartition(".")[0]

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

    @property
    def passes_on(self) -> bool:
        """Whether it hands its input on without weights that could change it: dropout, an identity."""
        return not self.has_weights and same(self.input, self.output)

    @cached_property
    def can_be_block(self) -> bool:
        """Whether it may be a block: it keeps the shape of its state, and changes it."""
        return self.keeps_shape and not self.passes_on

    def is_inside(self, others: Iterable["Call"]) -> bool:
        """Return whether the module is a part of one of these."""
        return self.path.startswith(tuple(f"{other.path}." for other in others))

    def holds(self, others: Iterable["Call"]) -> bool:
        """Return whether one of these is a part of the module."""
        return any(other.path.startswith(f"{self.path}.") for other in others)


Calls = list[Call]
MEND = "so move whatever the model does between its blocks into them"


class _Recorder:
    """The calls of one forward; `copied` are the numbers, in the order in which they start, of those to be copied."""

    def __init__(self, copied: frozenset[int]) -> None:
        self.calls: list[Call] = []
        self.marks: list[tuple[int, Tensor, float]] = []
        self.copied, self.started = copied, 0
        self.open: list[tuple[int, Tensor | None]] = []

    def before(self, _: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        read = self._seen(self.started, hidden_in(args, kwargs))
        self.open.append((self.started, read))
        self.started += 1

    def after(
        self, path: str, module: nn.Module, args: object, kwargs: object, output: object
    ) -> None:
        started, read = self.open.pop()
        state = hidden_of(output)
        returned = self._seen(started, state)
        if read is not None and state is not None and returned is not None:
            form, tensors = Form.of(output, state), tuple(tensors_in((args, kwargs)))
            call = Call(path, module, read, returned, form, tensors, len(self.calls))
            self.calls.append(call)

    def _seen(self, number: int, state: Tensor | None) -> Tensor | None:
        if state is None:
            return None
        if number in self.copied:
            return state.clone()
        self.marks.append((number, state, _mark(state)))
        return state


def trace(
    entry: nn.Module, prefix: str, inputs: Inputs, copied: frozenset[int] = frozenset()
) -> list[Call]:
    """Record every module call of one forward of `entry`, in the order in which they end."""
    recorder = _Recorder(copied)
    hooks = [
        (module, recorder.before, partial(recorder.after, prefix + name))
        for name, module in entry.named_modules()
        if name
    ]
    with hooked(hooks):
        forward(entry, inputs)
    if copied:
        return recorder.calls
    # states that the model overwrites afterwards (`x += block(x)`) are copied, in a second forward
    overwritten = {number for number, state, mark in recorder.marks if _mark(state) != mark}
    return trace(entry, prefix, inputs, frozenset(overwritten)) if overwritten else recorder.calls


def _mark(state: Tensor) -> float:
    """Return a number that changes when a state is overwritten."""
    total = float(state.detach().sum(dtype=torch.float64))
    return total if math.isfinite(total) else 0.0


def same(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors of a probe hold the same state (the same memory, or the same values)."""
    if a.shape != b.shape or a.device != b.device:
        return False
    # some models keep their stream in float32 and run blocks in half precision
    coarse = min(a.dtype, b.dtype, key=lambda dtype: dtype.itemsize)
    return (a.data_ptr() == b.data_ptr() and a.dtype == b.dtype) or bool(
        torch.equal(a.to(coarse), b.to(coarse))
    )


@torch.no_grad()
def is_norm(call: Call) -> bool:
    """Return whether a module normalises its input: no matrix of weights, and blind to the input's scale."""
    if any(p.ndim > 1 for p in call.module.parameters()) or call.input.shape != call.output.shape:
        return False
    # each token by its own size: a massive one would hide the others under eps
    size = call.input.float().pow(2).mean(-1, keepdim=True).sqrt().clamp_min(1e-12)
    x = call.input / size.to(call.input.dtype)
    try:
        once, twice = call.module(x), call.module(2 * x)
    except FAILURES:  # one that reads something else besides, such as a table of positions
        return False
    if not isinstance(once, Tensor) or once.shape != x.shape:
        return False
    fine = torch.isfinite(once) & torch.isfinite(twice)
    if not fine.any():
        # nothing left to judge by but its name: a broken norm is still the model's norm
        return "norm" in type(call.module).__name__.lower()
    once, twice = once[fine], twice[fine]
    blind = bool((once - twice).abs().max() <= 0.02 * once.abs().max())
    return blind and not same(once, x[fine])


@dataclass(frozen=True)
class Chain:
    """The calls of blocks in order, and what makes the state of every layer.

    `ends` are the calls that give the layers: the blocks themselves, or a module that reads a
    block's output before the next block does. With `added` a layer is the sum of what its block
    reads and what it gives: the model adds them.
    """

    blocks: tuple[Call, ...]
    ends: tuple[Call, ...]
    added: bool = False


class Broken(Exception):
    """Says in half a line why calls are no stack of blocks."""


@torch.no_grad()
def linked(blocks: Sequence[Call], calls: Sequence[Call]) -> Chain:
    """Return the chain of these calls of blocks; raise `Broken` where one reads other than the one before it gives."""
    first, last = blocks[0], blocks[-1]
    paths = {call.path for call in blocks}
    runs = sum(call.path in paths for call in calls)
    if runs != len(blocks):
        raise Broken(
            f"{first.path} … {last.path} run {runs} times, {len(blocks)} of them in a row, {MEND}"
        )
    pairs = list(zip(blocks, blocks[1:], strict=False))
    if pairs and all(_adds(one, two) for one, two in pairs):
        if any(_reads(call, last.output) for call in calls if call.number > last.number):
            raise Broken(
                f"the model reads what {last.path} gives alone, and adds it up after the others, {MEND}"
            )
        return Chain(tuple(blocks), tuple(blocks), added=True)
    ends = [_end_or_broken(one, two, calls) for one, two in pairs]
    ends.append(_last_end(last, ends, blocks, calls))
    paths = {end.path for end in ends}
    if sum(call.path in paths for call in calls) != len(ends):
        raise Broken(f"{ends[0].path} runs between the blocks and elsewhere too, {MEND}")
    return Chain(tuple(blocks), tuple(ends))


def _end_or_broken(one: Call, two: Call, calls: Sequence[Call]) -> Call:
    end = end_of(one, two, calls)
    if end is not None:
        return end
    how = f"are of {list(one.output.shape)} and {list(two.input.shape)}"
    if one.output.shape == two.input.shape:
        read = two.input.float()
        apart = (read - one.output.float()).norm() / read.norm().clamp_min(1e-12)
        how = f"differ by {float(apart):.0%}"
    raise Broken(f"{two.path} does not read what {one.path} gives (they {how}), {MEND}")


def _adds(one: Call, two: Call) -> bool:
    """Whether a call reads the sum of what another one read and gave: the model adds a block to its input."""
    fits = one.input.shape == two.input.shape and not same(one.output, two.input)
    return fits and same(one.input + one.output, two.input)


def end_of(one: Call, two: Call, calls: Sequence[Call]) -> Call | None:
    """Return the call that gives what the second block reads: the first one, or a module that reads its output."""
    if same(one.output, two.input):
        return one
    if one.input.shape != two.input.shape or one.path.startswith(two.path + "."):
        return None
    for call in reversed(calls):  # the outermost ends last
        if not one.number < call.number < two.number or call.is_inside((one, two)):
            continue
        if call.form.bare and same(call.output, two.input) and _reads(call, one.output):
            return call
    return None


def _last_end(
    last: Call, ends: Sequence[Call], blocks: Sequence[Call], calls: Sequence[Call]
) -> Call:
    """The last block, or where a module of one kind follows every block, the one that follows it."""
    later = [call for call in calls if call.number > last.number]
    if not ends:  # of a block alone it is what reads both the block's input and its output
        for call in later:
            reads_both = _reads(call, last.input) and _reads(call, last.output)
            if call.keeps_shape and call.form.bare and reads_both:
                return call
        return last
    if any(end is block for end, block in zip(ends, blocks, strict=False)):
        return last
    kind, shape = type(ends[-1].module), last.output.shape
    for call in later:
        if type(call.module) is kind and call.output.shape == shape and _reads(call, last.output):
            return call
    return last


def _reads(call: Call, state: Tensor) -> bool:
    return any(same(read, state) for read in (call.input, *call.read) if read.is_floating_point())
