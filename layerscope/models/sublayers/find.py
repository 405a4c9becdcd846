"""Name the sub-layers of every block, and say where a forward shows them.

A block is known by its arithmetic, not by the names of its modules. One run of it shows every state
[B, T, D] that passes between its modules, and a state that is the sum of two others is a residual
addition. Of a pre-norm block that reads state 0:

    state  given by               equals         so it is
    1      input_layernorm                       attn_norm: what the attention reads
    2      self_attn              changes when another token does: attn
    3      (seen at the next norm)  0 + 2        attn_residual
    4      post_attention_layernorm              mlp_norm
    5      mlp                    changes with its own token alone: mlp
    6      the block              3 + 5          raw

First the additions are looked for (`_additions`), then those on the way from the block's input to
its output are kept (`_leading`). What a branch is, is tried out: its block runs again while the
modules that read the stream are handed another first token (`_role`).
"""

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, product

import torch
from torch import Tensor, nn

from layerscope.models.forward import FAILURES, Form, Inputs
from layerscope.models.stack import Stack
from layerscope.models.sublayers.watch import BlockRun, Spot, Step, Sublayers, Tap, replay, watch
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
    stream, `mlp` what the branch that treats each token alone adds, `cross_attn` what a branch that reads an encoder
    adds; `attn_norm` is the norm of that branch (before it, after it, or after its addition),
    `attn_post_norm` a second one; `attn_residual` the stream after its addition. A norm that two
    branches share is `norm`. What equals the block's output is no site: it is `raw`.
    """
    stack.check_plain("sub-layers")
    taps: list[Tap] = []
    lacking: dict[str, list[int]] = {}
    for layer, run in enumerate(watch(module, stack, inputs), 1):
        sites, lacks = _sites(run)
        taps += [Tap(site, layer, spot) for site, spot in sites.items()]
        for lack in dict.fromkeys(lacks):
            lacking.setdefault(lack, []).append(layer)
    notes = []
    for lack, layers in lacking.items():
        numbers = f"{layers[0]} to {layers[-1]}" if len(layers) > 3 else ", ".join(map(str, layers))
        notes.append(f"sub-layers of block{'s' if len(layers) > 1 else ''} {numbers}: {lack}")
    return Sublayers(tuple(taps), tuple(notes))


def _sites(run: BlockRun) -> tuple[dict[str, Spot], list[str]]:
    """Return the sites of one block, in the order in which they are seen, and what of it is not identified."""
    norms = list(_normalising(run))
    additions = _leading(run, _additions(run, norms), norms)
    roles, lacks = _roles(run, additions)
    before_norm = {norm.output: norm.input for norm in reversed(norms)}
    states: dict[str, int] = {}
    for addition in additions:
        named = [branch for branch in addition.branches if branch in roles]
        states |= {roles[branch]: before_norm.get(branch, branch) for branch in named}
        if len(addition.branches) > 1:
            states[_free("residual", states)] = addition.total
        elif named:
            states[_free(f"{roles[named[0]]}_residual", states)] = addition.total
    for served, norm in _norms(run, norms, additions, roles):
        name = f"{served[0]}_norm" if len(served) == 1 else "norm"
        if name in states:
            name = _free(name.replace("norm", "post_norm"), states)
        states[name] = norm
    ordered = sorted((number, name) for name, number in states.items() if number != run.last)
    return {name: run.states[number].spot for number, name in ordered}, lacks


def _roles(run: BlockRun, additions: list[Addition]) -> tuple[dict[int, str], list[str]]:
    """Return the name of each branch, and what is not identified."""
    roles: dict[int, str] = {}
    if not additions:
        return roles, ["no chain of residual additions leads to the block's output"]
    lacks = []
    for addition in additions:
        for branch in addition.branches:
            role = None
            with suppress(*FAILURES):  # a block that cannot be run again by itself
                role = _role(run, addition, branch)
            if role is None:
                path = run.states[branch].spot.path
                lacks.append(f"the input that {path} adds cannot be identified")
            else:
                roles[branch] = _free(role, roles.values())
    return roles, lacks


def _norms(
    run: BlockRun, norms: list[Step], additions: list[Addition], roles: dict[int, str]
) -> Iterator[tuple[list[str], int]]:
    """Yield the branches and the states of norms: first of those before a branch, then after it or its addition."""
    after: list[tuple[list[str], int]] = []
    # else the stream itself starts behind a norm
    post_norm = any(addition.base == 0 for addition in additions)
    by_total = {addition.total: addition for addition in reversed(additions)}
    bases = {addition.base for addition in additions}
    for norm in norms:
        goes_on = norm.output == run.last or norm.output in bases
        if norm.output in roles:
            after.append(([roles[norm.output]], norm.output))
        elif norm.input in by_total and goes_on and post_norm:
            branches = by_total[norm.input].branches
            after.append(([roles[b] for b in branches if b in roles], norm.output))
        elif served := _served(run, norm, additions, roles):
            yield served, norm.output
    yield from after


def _served(
    run: BlockRun, norm: Step, additions: list[Addition], roles: dict[int, str]
) -> list[str]:
    """Return the branches that read what a norm gives: those that change where it is handed another state."""
    changed = {(norm.spot.path, norm.spot.call): _other_first(run.states[norm.input].value)}
    served = []
    for addition in additions:
        if addition.base in (norm.input, norm.output):
            branches = [branch for branch in addition.branches if branch in roles]
            served += [roles[branch] for branch in branches if any(_changes(run, branch, changed))]
    return served


def _free(name: str, taken: Collection[str]) -> str:
    """Return a name, with a number from 2 on where it is taken: a block may hold two branches of one kind."""
    free, number = name, 2
    while free in taken:
        free = f"{name}_{number}"
        number += 1
    return free


def _role(run: BlockRun, addition: Addition, branch: int) -> str | None:
    """Return `attn` for a branch that mixes tokens, `cross_attn` for one that reads other states, `mlp` for the rest.

    Modules that read the stream are handed another first token: where what a branch gives later
    changes, it mixes.
    """
    stream = run.states[addition.base]
    readers = [(spot.path, spot.call) for spot in stream.seen if spot.is_input]
    here, later = _changes(run, branch, dict.fromkeys(readers, _other_first(stream.value)))
    if later:
        return "attn"
    if not here:
        return None
    pinned = dict.fromkeys(readers, stream.value)
    return "cross_attn" if any(_changes(run, branch, pinned, others=True)) else "mlp"


def _other_first(state: Tensor) -> Tensor:
    """Return a state [B, T, D] with another vector of usual size as its first token."""
    drawn = torch.randn(state.shape[-1], generator=torch.Generator().manual_seed(0)).to(state)
    other = state.clone()
    other[:, 0] = drawn * state.float().pow(2).mean().sqrt().to(state.dtype)
    return other


def _changes(
    run: BlockRun, branch: int, hand: dict[tuple[str, int], Tensor], *, others: bool = False
) -> tuple[bool, bool]:
    """Return whether a branch changes at the first token, and whether at a later one."""
    state = run.states[branch]
    if not hand:
        return False, False
    changed = replay(run, hand, state.spot, others=others)
    # of its size: far above rounding
    least = 0.4 * float(torch.finfo(state.value.dtype).eps) ** 0.5
    size = state.value.double().norm(dim=-1).clamp_min(1e-30)
    moved = (changed.double() - state.value.double()).norm(dim=-1) / size > least
    return bool(moved[:, 0].any()), bool(moved[:, 1:].any())


def _additions(run: BlockRun, norms: list[Step]) -> list[Addition]:
    if run.states[0].value.ndim != 3 or run.states[0].value.shape[1] < LEAST_TOKENS:
        return []
    additions: list[Addition] = []
    # the block's input; a sum goes on with it, and in post-norm blocks what a norm makes of a sum
    stream = [0]
    for number in range(1, len(run.states)):
        if any(norm.output == number and norm.input in stream for norm in norms):
            stream.append(number)
            continue
        several = number == run.last or any(norm.input == number for norm in norms)
        addition = _sum(run, number, stream, several)
        if addition is not None:
            additions.append(addition)
            stream.append(number)
    return additions


def _sum(run: BlockRun, number: int, stream: list[int], several: bool) -> Addition | None:
    """Return a state as a sum: of one branch if it can be, else (where asked for) of two that run side by side."""
    candidates = [
        i
        for i in range(1, number)
        if i not in stream and not all(spot.is_input for spot in run.states[i].seen)
    ]
    singles: list[tuple[int, ...]] = [(i,) for i in reversed(candidates)]
    pairs: list[tuple[int, ...]] = list(combinations(candidates, 2)) if several else []
    for group, scaled in product((singles, pairs), (None, "number", "channel")):
        for base, branches in product(reversed(stream), group):
            if _is_sum(run, number, base, branches, scaled):
                return Addition(base, branches, number)
    return None


def _is_sum(
    run: BlockRun, number: int, base: int, branches: tuple[int, ...], scaled: str | None
) -> bool:
    """Whether a state is a sum, of branches scaled by nothing, one number (Granite), or one for each channel (BEiT)."""
    state, start = run.states[number].value, run.states[base].value
    if not bool(start.any()):
        return False  # to nothing (DETR's first queries) anything is added
    rounding = torch.finfo(state.dtype).eps
    added = state.double() - start.double()
    size = added.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    # token by token: beside a massive one any other difference would look small
    added, branch = (
        added / size,
        torch.stack([run.states[i].value.double() for i in branches]).sum(0) / size,
    )
    if scaled is not None:
        over = (0, 1, 2) if scaled == "number" else (0, 1)
        branch = (added * branch).sum(over) / (branch * branch).sum(over).clamp_min(1e-30) * branch
    sizes = torch.maximum(state.double().norm(dim=-1), start.double().norm(dim=-1)) / size[..., 0]
    return bool(
        ((added - branch).norm(dim=-1) <= (EXACT + rounding * sizes).clamp_max(ROUGH)).all()
    )


def _leading(run: BlockRun, additions: list[Addition], norms: list[Step]) -> list[Addition]:
    """Return the additions from a block's input to its output; none where the way has a gap or takes a branch twice."""
    wanted, way = {run.last}, list[Addition]()
    for addition in reversed(additions):
        wanted |= {norm.input for norm in norms if norm.output in wanted}
        if addition.total in wanted:
            way.insert(0, addition)
            wanted.add(addition.base)
    wanted |= {norm.input for norm in norms if norm.output in wanted}
    branches = [branch for addition in way for branch in addition.branches]
    return way if 0 in wanted and len(set(branches)) == len(branches) else []


def _normalising(run: BlockRun) -> Iterator[Step]:
    """Yield the calls inside a block that normalise a state."""
    for step in run.steps:
        read, returned = run.states[step.input].value, run.states[step.output].value
        if step.input != step.output and is_norm(
            Call(step.spot.path, step.module, read, returned, Form())
        ):
            yield step
