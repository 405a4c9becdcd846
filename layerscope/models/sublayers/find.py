"""Name the sub-layers of every block, and say where a forward shows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import nn

from layerscope.models.forward import FAILURES, Inputs
from layerscope.models.stack import Stack
from layerscope.models.sublayers.additions import Addition, additions, leading, normalising
from layerscope.models.sublayers.roles import role, serves
from layerscope.models.sublayers.taps import Place, Sublayers, Tap
from layerscope.models.sublayers.watch import BlockRun, Step, watch

Named = dict[str, Place]


@torch.no_grad()
def find_sublayers(module: nn.Module, stack: Stack, inputs: Inputs) -> Sublayers:
    """Find the sub-layers of every block in one small forward, each block by itself; what cannot be told is left out.

    Sites: `attn` is what the branch that mixes tokens (attention, a state-space mixer) adds to the stream, `mlp` what
    the branch that treats each token alone adds, `cross_attn` what a branch that reads an encoder adds; `attn_norm` is
    the norm of that branch (before it, after it, or after its addition), `attn_post_norm` a second one;
    `attn_residual` the stream after its addition. A norm that two branches share is `norm`. What equals the block's
    output is no site: it is `raw`.
    """
    stack.check_plain("sub-layers")
    taps: list[Tap] = []
    told: dict[str, dict[int, None]] = {}
    for layer, run in enumerate(watch(module, stack, inputs), 1):
        sites, lacks = _sites(run)
        taps += [Tap(site, layer, place) for site, place in sites.items()]
        for lack in lacks:
            told.setdefault(lack, {})[layer] = None
    notes = (f"sub-layers of {_blocks(list(layers))}: {lack}" for lack, layers in told.items())
    return Sublayers(tuple(taps), tuple(notes))


def _blocks(layers: list[int]) -> str:
    numbers = f"{layers[0]} to {layers[-1]}" if len(layers) > 3 else ", ".join(map(str, layers))
    return f"block {numbers}" if len(layers) == 1 else f"blocks {numbers}"


def _sites(run: BlockRun) -> tuple[Named, list[str]]:
    """Return the sites of one block, in the order in which they are seen, and what could not be told of it."""
    norms = list(normalising(run))
    found = leading(run, additions(run, norms), norms)
    lacks = [] if found else ["no chain of residual additions leads to the block's output"]
    states: dict[str, int] = {}
    roles: dict[int, str] = {}
    for addition in found:
        for branch in addition.branches:
            name = _role(run, addition, branch)
            if name is None:
                lacks.append(f"what {run.states[branch].place.path} adds cannot be told")
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
    return {name: run.states[number].place for number, name in ordered}, lacks


def _role(run: BlockRun, addition: Addition, branch: int) -> str | None:
    try:
        return role(run, addition, branch)
    except FAILURES:
        return None  # a block that cannot be run again by itself is told as one that cannot be told


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
