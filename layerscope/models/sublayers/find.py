"""Name the sub-layers of every block, and say where a forward shows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from layerscope.models.forward import FAILURES, Inputs
from layerscope.models.stack import Stack
from layerscope.models.sublayers.additions import Addition, additions, leading, normalising
from layerscope.models.sublayers.watch import BlockRun, Spot, Step, Sublayers, Tap, replay, watch

Named = dict[str, Spot]


@torch.no_grad()
def find_sublayers(module: nn.Module, stack: Stack, inputs: Inputs) -> Sublayers:
    """Find the sub-layers of every block in one small forward; those that cannot be identified are left out and noted.

    Sites: `attn` is what the branch that mixes tokens (attention, a state-space mixer) adds to the stream, `mlp` what
    the branch that treats each token alone adds, `cross_attn` what a branch that reads an encoder adds; `attn_norm` is
    the norm of that branch (before it, after it, or after its addition), `attn_post_norm` a second one;
    `attn_residual` the stream after its addition. A norm that two branches share is `norm`. What equals the block's
    output is no site: it is `raw`.
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


def _sites(run: BlockRun) -> tuple[Named, list[str]]:
    """Return the sites of one block, in the order in which they are seen, and what of it is not identified."""
    norms = list(normalising(run))
    found = leading(run, additions(run, norms), norms)
    lacks = [] if found else ["no chain of residual additions leads to the block's output"]
    states: dict[str, int] = {}
    roles: dict[int, str] = {}
    for addition in found:
        for branch in addition.branches:
            try:
                name = role(run, addition, branch)
            except FAILURES:  # a block that cannot be run again by itself
                name = None
            if name is None:
                lacks.append(f"what {run.states[branch].spot.path} adds cannot be identified")
                continue
            name = _free(name, roles.values())
            roles[branch] = name
            states[name] = next((norm.given for norm in norms if norm.returned == branch), branch)
        label = roles.get(addition.branches[0]) if len(addition.branches) == 1 else ""
        if label is not None:
            states[_free("_".join(filter(None, (label, "residual"))), states)] = addition.total
    for name, norm in _norms(run, norms, found, roles):
        states[_free(name, states) if name not in states else _free(name.replace("norm", "post_norm"), states)] = norm
    ordered = sorted((number, name) for name, number in states.items() if number != run.last)
    return {name: run.states[number].spot for number, name in ordered}, lacks


def _norms(run: BlockRun, norms: list[Step], found: list[Addition], roles: dict[int, str]) -> Iterator[tuple[str, int]]:
    """Yield names and states of the norms: first of those before a branch, then of those after it or its addition."""
    after: list[tuple[str, int]] = []
    post_norm = any(addition.base == 0 for addition in found)  # else the stream itself starts behind a norm
    for norm in norms:
        if norm.returned in roles:
            after.append((f"{roles[norm.returned]}_norm", norm.returned))
            continue
        ends = [a for a in found if a.total == norm.given]
        goes_on = norm.returned == run.last or any(a.base == norm.returned for a in found)
        if ends and goes_on and post_norm:
            served = [roles[b] for b in ends[0].branches if b in roles]
            after.append((_norm_name(served), norm.returned))
            continue
        starts = [a for a in found if norm.given == a.base or norm.returned == a.base]
        served = [roles[b] for a in starts for b in a.branches if b in roles and serves(run, norm, b)]
        if served:
            yield _norm_name(served), norm.returned
    yield from after


def _norm_name(roles: list[str]) -> str:
    return f"{roles[0]}_norm" if len(roles) == 1 else "norm"


def _free(name: str, taken: Iterable[str]) -> str:
    """Return a name, with a number from 2 on where it is taken: a block may hold two branches of one kind."""
    names = set(taken)
    return name if name not in names else next(f"{name}_{i}" for i in range(2, 100) if f"{name}_{i}" not in names)


def role(run: BlockRun, addition: Addition, branch: int) -> str | None:
    """Return `attn` for a branch that mixes tokens, `cross_attn` for one that reads other states, `mlp` for the rest.

    Every module that reads the stream before the addition is handed another first token: where what the branch gives at
    later tokens changes, it mixes. None where nothing that it gives changes.
    """
    stream = run.states[addition.base].value
    own, later = _changes(run, branch, _readers(run, addition.base, _other_first(stream)))
    if later:
        return "attn"
    if not own:
        return None
    pinned = _readers(run, addition.base, stream)
    return "cross_attn" if any(_changes(run, branch, pinned, others=True)) else "mlp"


def serves(run: BlockRun, norm: Step, branch: int) -> bool:
    """Return whether a branch reads what a norm gives, found by handing the norm another first token."""
    value = _other_first(run.states[norm.given].value)
    return any(_changes(run, branch, {(norm.spot.path, norm.spot.call): value}))


def _other_first(state: Tensor) -> Tensor:
    """Return a state [B, T, D] with another vector of usual size as its first token."""
    drawn = torch.randn(state.shape[-1], generator=torch.Generator().manual_seed(0)).to(state)
    other = state.clone()
    other[:, 0] = drawn * state.float().pow(2).mean().sqrt().to(state.dtype)
    return other


def _readers(run: BlockRun, number: int, value: Tensor) -> dict[tuple[str, int], Tensor]:
    return {(spot.path, spot.call): value for spot in run.states[number].seen if spot.given}


def _changes(
    run: BlockRun, branch: int, hand: dict[tuple[str, int], Tensor], *, others: bool = False
) -> tuple[bool, bool]:
    """Return whether a branch changes at the first token, and whether at a later one."""
    state = run.states[branch]
    if not hand:
        return False, False
    changed = replay(run, hand, state.spot, others=others)
    least = 0.4 * float(torch.finfo(state.value.dtype).eps) ** 0.5  # of its size: far above rounding
    size = state.value.double().norm(dim=-1).clamp_min(1e-30)
    moved = (changed.double() - state.value.double()).norm(dim=-1) / size > least
    return bool(moved[:, 0].any()), bool(moved[:, 1:].any())
