"""Residual additions, found by value: which state of a block is the sum of an earlier one and of what modules gave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from layerscope.models.sublayers.watch import BlockRun, Step
from layerscope.models.trace import Call, is_norm

LEAST_TOKENS = 4
"""Fewer tokens are too few to recognise a scaled sum by."""
EXACT = 1e-3
ROUGH = 0.1
"""A sum may differ by EXACT of what is added, and by its dtype's rounding, never by more than ROUGH."""


@dataclass(frozen=True)
class Addition:
    """States by number: `total` = `base` + each of `branches`, which may be scaled on the way."""

    base: int
    branches: tuple[int, ...]
    total: int


def additions(run: BlockRun, norms: list[Step]) -> list[Addition]:
    """Return the residual additions of a block in their order.

    The stream starts as the block's input; a sum goes on with it, and so does what a norm makes of it (in post-norm
    blocks the next addition is to the norm's output).
    """
    if run.states[0].value.ndim != 3 or run.states[0].value.shape[1] < LEAST_TOKENS:
        return []
    found: list[Addition] = []
    stream = [0]
    for number in range(1, len(run.states)):
        if any(norm.returned == number and norm.given in stream for norm in norms):
            stream.append(number)
            continue
        several = number == run.last or any(norm.given == number for norm in norms)
        addition = _sum(run, number, stream, several)
        if addition is not None:
            found.append(addition)
            stream.append(number)
    return found


def _sum(run: BlockRun, number: int, stream: list[int], several: bool) -> Addition | None:
    """Return a state as a sum: of one branch if it can be, else (where asked for) of two that run side by side."""
    given = [i for i in range(1, number) if i not in stream and run.states[i].is_returned]
    singles: list[tuple[int, ...]] = [(i,) for i in reversed(given)]
    pairs: list[tuple[int, ...]] = list(combinations(given, 2)) if several else []
    for branches_ in (singles, pairs):
        for scaled in (None, "number", "channel"):
            for base, branches in ((base, branches) for base in reversed(stream) for branches in branches_):
                if _is_sum(run, number, base, branches, scaled):
                    return Addition(base, branches, number)
    return None


def _is_sum(run: BlockRun, number: int, base: int, branches: tuple[int, ...], scaled: str | None) -> bool:
    state, start = run.states[number].value, run.states[base].value
    if not bool(start.any()):
        return False  # to nothing (DETR's first queries) anything is added
    rounding = torch.finfo(state.dtype).eps
    added = state.double() - start.double()
    branch = torch.stack([run.states[i].value.double() for i in branches]).sum(0)
    size = added.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    # token by token: beside a massive one any other difference would look small
    left = (added / size - _scale(added / size, branch / size, scaled) * branch / size).norm(dim=-1)
    sizes = torch.maximum(state.double().norm(dim=-1), start.double().norm(dim=-1)) / size[..., 0]
    return bool((left <= (EXACT + rounding * sizes).clamp_max(ROUGH)).all())


def _scale(added: Tensor, branch: Tensor, scaled: str | None) -> Tensor | float:
    """Return by what a branch is scaled: nothing, one number (Granite), or one for each channel (BEiT)."""
    if scaled is None:
        return 1.0
    over = (0, 1, 2) if scaled == "number" else (0, 1)
    return (added * branch).sum(over) / (branch * branch).sum(over).clamp_min(1e-30)


def leading(run: BlockRun, found: list[Addition], norms: list[Step]) -> list[Addition]:
    """Return the additions on the way from a block's input to its output, in order.

    None where the way has a gap, or takes one branch twice: such sums only look like additions.
    """
    wanted, way = {run.last}, list[Addition]()
    for addition in reversed(found):
        wanted |= {norm.given for norm in norms if norm.returned in wanted}
        if addition.total in wanted:
            way.insert(0, addition)
            wanted.add(addition.base)
    wanted |= {norm.given for norm in norms if norm.returned in wanted}
    branches = [branch for addition in way for branch in addition.branches]
    return way if 0 in wanted and len(set(branches)) == len(branches) else []


def normalising(run: BlockRun) -> Iterator[Step]:
    """Yield the calls inside a block that normalise a state."""
    for step in run.steps:
        given, returned = run.states[step.given].value, run.states[step.returned].value
        if step.given != step.returned and is_norm(Call(step.spot.path, step.module, given, returned, 0)):
            yield step
