"""Name the sub-layers of every block, and say where a forward shows them.

A block is known by its arithmetic, not by the names of its modules. One run of it shows every state
[B, T, D] that passes between its modules, and a state that is the sum of two others is a residual
addition. Of a pre-norm block that reads state 0:

    state  given by               equals         so it is
    1      input_layernorm                       what the attention reads
    2      self_attn              changes when another token does: attn
    3      (seen at the next norm)  0 + 2        attn_residual
    4      post_attention_layernorm              what the MLP reads
    5      mlp                    changes with its own token alone: mlp
    6      the block              3 + 5          raw

First the additions are looked for (`_additions`), then those on the way from the block's input to
its output are kept (`_leading`). What a branch is, is tried out: its block runs again while the
modules that read the stream are handed another first token (`_role`).
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, product

import torch
from torch import Tensor, nn

from layerscope.core import spans
from layerscope.models.forward import FAILURES, Form, Inputs
from layerscope.models.stack import Stack
from layerscope.models.sublayers.watch import (
    BlockRun,
    Spot,
    Step,
    Sublayers,
    Tap,
    replay,
    watch,
)
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


@torch.no_grad()
def find_sublayers(module: nn.Module, stack: Stack, inputs: Inputs) -> Sublayers:
    """Find the sub-layers of every block in one small forward; those that cannot be identified are left out and noted.

    Sites: `attn` is what the branch that mixes tokens (attention, a state-space mixer) adds to the
    stream, `mlp` what the branch that treats each token alone adds, `cross_attn` what a branch that
    reads an encoder adds; `attn_residual` is the stream after its addition. What equals the block's
    output is no site: it is `raw`.
    """
    taps: list[Tap] = []
    unclear: list[int] = []
    for layer, run in enumerate(watch(module, stack, inputs), 1):
        sites, is_whole = _sites(run)
        taps += [Tap(site, layer, spot) for site, spot in sites.items()]
        if not is_whole:
            unclear.append(layer)
    if not unclear:
        return Sublayers(tuple(taps))
    note = f"sub-layers cannot all be identified in {spans(unclear, 'block')}"
    return Sublayers(tuple(taps), (note,))


def _sites(run: BlockRun) -> tuple[dict[str, Spot], bool]:
    """Return the sites of one block, in the order in which they are seen, and whether all of it is identified."""
    norms = list(_normalising(run))
    additions = _leading(run, _additions(run, norms), norms)
    states: dict[str, int] = {}
    is_whole = bool(additions)
    for addition in additions:
        names = []
        for branch in addition.branches:
            role = None
            with suppress(*FAILURES):  # a block that cannot be run again by itself
                role = _role(run, addition, branch)
            # of two branches of one kind the second has no name
            if role is None or role in states:
                is_whole = False
                continue
            names.append(role)
            states[role] = branch
        if len(addition.branches) > 1:
            states["residual"] = addition.total
        elif names:
            states[f"{names[0]}_residual"] = addition.total
    sites = {}
    for name in sorted(states, key=states.__getitem__):
        if states[name] != run.last:
            sites[name] = run.states[states[name]].spot
    return sites, is_whole


def _role(run: BlockRun, addition: Addition, branch: int) -> str | None:
    """Return `attn` for a branch that mixes tokens, `cross_attn` for one that reads other states, `mlp` for the rest.

    Modules that read the stream are handed another first token: where what a branch gives later
    changes, it mixes.
    """
    stream = run.states[addition.base]
    readers = [spot for spot in stream.seen if spot.is_input]
    if not readers:
        return None
    other = dict.fromkeys(readers, _other_first(stream.value))
    changes = _changes(run, branch, other)
    if changes[:, 1:].any():
        return "attn"
    if not changes.any():
        return None
    pinned = dict.fromkeys(readers, stream.value)
    if _changes(run, branch, pinned, others=True).any():
        return "cross_attn"
    return "mlp"


def _other_first(state: Tensor) -> Tensor:
    """Return a state [B, T, D] with another vector of usual size as its first token."""
    seeded = torch.Generator().manual_seed(0)
    drawn = torch.randn(state.shape[-1], generator=seeded)
    size = state.float().pow(2).mean().sqrt()
    other = state.clone()
    other[:, 0] = drawn.to(state) * size.to(state.dtype)
    return other


def _changes(
    run: BlockRun,
    branch: int,
    hand: dict[Spot, Tensor],
    *,
    others: bool = False,
) -> Tensor:
    """Return at which tokens [B, T] what a branch gives changes."""
    state = run.states[branch]
    changed = replay(run, hand, others=others)[state.spot]
    # of its size: far above rounding
    least = 0.4 * float(torch.finfo(state.value.dtype).eps) ** 0.5
    before = state.value.double()
    size = before.norm(dim=-1).clamp_min(1e-30)
    distance = (changed.double() - before).norm(dim=-1)
    moved: Tensor = distance / size > least
    return moved


def _additions(run: BlockRun, norms: list[Step]) -> list[Addition]:
    """Return the states of a block that are sums, in order."""
    entering = run.states[0].value
    if entering.ndim != 3 or entering.shape[1] < LEAST_TOKENS:
        return []
    additions: list[Addition] = []
    # the block's input; a sum goes on with it, and in post-norm blocks what a norm makes of a sum
    stream = [0]
    for number in range(1, len(run.states)):
        sources = {norm.input for norm in norms if norm.output == number}
        if sources.intersection(stream):
            stream.append(number)
            continue
        several = number in {run.last, *(norm.input for norm in norms)}
        addition = _sum(run, number, stream, several)
        if addition is not None:
            additions.append(addition)
            stream.append(number)
    return additions


def _sum(
    run: BlockRun, number: int, stream: list[int], several: bool
) -> Addition | None:
    """Return a state as a sum: of one branch if it can be, else (where asked for) of two that run side by side."""
    returned = [i for i in range(1, number) if not run.states[i].spot.is_input]
    candidates = [i for i in returned if i not in stream]
    for size in range(1, 2 + several):
        groups = list(combinations(candidates, size))
        if size == 1:
            groups.reverse()
        for scaled, base, branches in product((False, True), reversed(stream), groups):
            if _is_sum(run, number, base, branches, scaled):
                return Addition(base, branches, number)
    return None


def _is_sum(
    run: BlockRun, number: int, base: int, branches: tuple[int, ...], scaled: bool
) -> bool:
    """Whether a state is a sum, of branches that may be scaled by a number for each channel."""
    state = run.states[number].value
    start = run.states[base].value
    if not bool(start.any()):
        return False  # to nothing (DETR's first queries) anything is added
    rounding = torch.finfo(state.dtype).eps
    added = state.double() - start.double()
    size = added.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    # token by token: beside a massive one any other difference would look small
    added = added / size
    values = [run.states[i].value.double() for i in branches]
    branch = torch.stack(values).sum(0) / size
    if scaled:
        squares = (branch * branch).sum((0, 1)).clamp_min(1e-30)
        branch = (added * branch).sum((0, 1)) / squares * branch
    state_norms = state.double().norm(dim=-1)
    start_norms = start.double().norm(dim=-1)
    sizes = torch.maximum(state_norms, start_norms) / size[..., 0]
    errors = (added - branch).norm(dim=-1)
    most = (EXACT + rounding * sizes).clamp_max(ROUGH)
    return bool((errors <= most).all())


def _leading(
    run: BlockRun, additions: list[Addition], norms: list[Step]
) -> list[Addition]:
    """Return the additions from a block's input to its output; none where the way has a gap or takes a branch twice."""
    stream = {run.last}
    path = list[Addition]()
    for addition in reversed(additions):
        stream |= {norm.input for norm in norms if norm.output in stream}
        if addition.total in stream:
            path.insert(0, addition)
            stream.add(addition.base)
    stream |= {norm.input for norm in norms if norm.output in stream}
    branches = [branch for addition in path for branch in addition.branches]
    if 0 in stream and len(set(branches)) == len(branches):
        return path
    return []


def _normalising(run: BlockRun) -> Iterator[Step]:
    """Yield the calls inside a block that normalise a state."""
    for step in run.steps:
        read = run.states[step.input].value
        returned = run.states[step.output].value
        module = run.block.get_submodule(step.path)
        call = Call(step.path, module, read, returned, Form.of(returned))
        if step.input != step.output and is_norm(call):
            yield step
