"""What a branch of a block does, and what a norm serves, found by changing what they read."""

from __future__ import annotations

import torch
from torch import Tensor

from layerscope.models.sublayers.additions import Addition
from layerscope.models.sublayers.watch import BlockRun, Step, replay


def role(run: BlockRun, addition: Addition, branch: int) -> str | None:
    """Return `attn` for a branch that mixes tokens, `cross_attn` for one that reads other states, `mlp` for the rest.

    Every module that reads the stream before the addition is handed another first token: where what the branch gives at
    later tokens changes, it mixes. None where nothing that it gives changes.
    """
    stream = run.states[addition.base].value
    own, later = _changes(run, branch, _readers(run, addition.base, other_first(stream)))
    if later:
        return "attn"
    if not own:
        return None
    pinned = _readers(run, addition.base, stream)
    return "cross_attn" if any(_changes(run, branch, pinned, others=True)) else "mlp"


def serves(run: BlockRun, norm: Step, branch: int) -> bool:
    """Return whether a branch reads what a norm gives, found by handing the norm another first token."""
    value = other_first(run.states[norm.given].value)
    return any(_changes(run, branch, {(norm.place.path, norm.place.call): value}))


def other_first(state: Tensor) -> Tensor:
    """Return a state [B, T, D] with another vector of usual size in the place of its first token."""
    drawn = torch.randn(state.shape[-1], generator=torch.Generator().manual_seed(0)).to(state)
    other = state.clone()
    other[:, 0] = drawn * state.float().pow(2).mean().sqrt().to(state.dtype)
    return other


def _readers(run: BlockRun, number: int, value: Tensor) -> dict[tuple[str, int], Tensor]:
    places = [place for place in run.states[number].seen if place.given]
    return {(place.path, place.call): value for place in places}


def _changes(
    run: BlockRun, branch: int, hand: dict[tuple[str, int], Tensor], *, others: bool = False
) -> tuple[bool, bool]:
    """Return whether a branch changes at the first token, and whether at a later one."""
    state = run.states[branch]
    if not hand:
        return False, False
    changed = replay(run, hand, [state.place], others=others)[0]
    least = 0.4 * float(torch.finfo(state.value.dtype).eps) ** 0.5  # of its size: far above rounding
    size = state.value.double().norm(dim=-1).clamp_min(1e-30)
    moved = (changed.double() - state.value.double()).norm(dim=-1) / size > least
    return bool(moved[:, 0].any()), bool(moved[:, 1:].any())
