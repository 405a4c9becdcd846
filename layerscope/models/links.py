"""Whether calls follow one another as blocks do: what one gives is what the next one reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from layerscope.models.trace import Call, same

MEND = "so move what the model does between its blocks into them"


@dataclass(frozen=True)
class Chain:
    """The calls of blocks in order, and what makes the state of every layer.

    `ends` are the calls that give the layers: the blocks themselves, or a module that reads a block's output before the
    next block does. With `added` a layer is the sum of what its block reads and what it gives: the model adds them.
    """

    blocks: tuple[Call, ...]
    ends: tuple[Call, ...]
    added: bool = False

    @property
    def parameters(self) -> int:
        """The number of weights in the blocks, of a shared one once."""
        modules = {id(call.module): call.module for call in self.blocks}
        return sum(p.numel() for module in modules.values() for p in module.parameters())


class Broken(Exception):
    """Says in half a line why calls are no stack of blocks."""


@torch.no_grad()
def linked(blocks: Sequence[Call], calls: Sequence[Call]) -> Chain:
    """Return the chain of these blocks; raise `Broken` where one reads something else than the one before it gives.

    Args:
        blocks: calls of blocks, in order.
        calls: every call of the probe.

    """
    paths = {call.path for call in blocks}
    runs = sum(call.path in paths for call in calls)
    if runs != len(blocks):
        raise Broken(f"{blocks[0].path} … {blocks[-1].path} run {runs} times, {len(blocks)} of them in a row, {MEND}")
    pairs = list(zip(blocks, blocks[1:], strict=False))
    if pairs and all(adds(one, two) for one, two in pairs):
        if any(_reads(call, blocks[-1].returned) for call in calls[calls.index(blocks[-1]) + 1 :]):
            raise Broken(f"the model reads what {blocks[-1].path} gives alone, and adds it up after the others, {MEND}")
        return Chain(tuple(blocks), tuple(blocks), added=True)
    ends: list[Call] = []
    for one, two in pairs:
        end = end_of(one, two, calls)
        if end is None:
            how = f"are of {list(one.returned.shape)} and {list(two.given.shape)}"
            if one.returned.shape == two.given.shape:
                apart = (two.given.float() - one.returned.float()).norm() / two.given.float().norm().clamp_min(1e-12)
                how = f"differ by {float(apart):.0%}"
            raise Broken(f"{two.path} does not read what {one.path} gives (they {how}), {MEND}")
        ends.append(end)
    ends.append(_last_end(blocks[-1], ends, blocks, calls))
    again = {end.path for end in ends}
    if sum(call.path in again for call in calls) != len(ends):
        raise Broken(f"{ends[0].path} runs between the blocks and elsewhere too, {MEND}")
    return Chain(tuple(blocks), tuple(ends))


def adds(one: Call, two: Call) -> bool:
    """Return whether a call reads the sum of what another one read and gave: the model adds a block to its input."""
    if one.given.shape != two.given.shape or same(one.returned, two.given):
        return False
    return same(one.given + one.returned, two.given)


def end_of(one: Call, two: Call, calls: Sequence[Call]) -> Call | None:
    """Return the call that gives what the second block reads: the first one, or a module that reads its output."""
    if same(one.returned, two.given):
        return one
    if one.given.shape != two.given.shape or one.path.startswith(two.path + "."):
        return None
    between = calls[calls.index(one) + 1 : calls.index(two)]
    for call in reversed(between):  # the outermost ends last
        inside = call.path.startswith((one.path + ".", two.path + "."))
        if not inside and call.outputs == 0 and same(call.returned, two.given) and _reads(call, one.returned):
            return call
    return None


def _last_end(last: Call, ends: Sequence[Call], blocks: Sequence[Call], calls: Sequence[Call]) -> Call:
    """The last block, or where a module of one kind follows every block, the one that follows it.

    Of a block alone it is the module that reads both what the block read and what it gives.
    """
    later = calls[calls.index(last) + 1 :]
    if not ends:
        both = (c for c in later if c.keeps_shape and _reads(c, last.given) and _reads(c, last.returned))
        return next((c for c in both if c.outputs == 0), last)
    if any(end is block for end, block in zip(ends, blocks, strict=False)):
        return last
    kind = type(ends[-1].module)
    like = (c for c in later if type(c.module) is kind and c.returned.shape == last.returned.shape)
    return next((c for c in like if _reads(c, last.returned)), last)


def _reads(call: Call, state: Tensor) -> bool:
    return any(same(read, state) for read in (call.given, *call.read) if read.is_floating_point())
