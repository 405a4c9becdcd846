"""The stages of a hierarchical model, which differ in width or in number of tokens: each is a stack of its own."""

from __future__ import annotations

from collections.abc import Callable

from layerscope.models.trace import Call

Calls = list[Call]


def stage_chains(selected: Calls, calls: Calls, chains_of: Callable[[Calls], list[Calls]]) -> list[Calls]:
    """Return the blocks of every stage, or nothing where the model has no stages.

    Args:
        selected: the calls that the model declares to give its hidden states, or that it checkpoints.
        calls: every call of the probe.
        chains_of: finds the chains of blocks among the calls inside one stage.

    Stages are selected calls that change a state's shape; the last one may keep it.

    """
    outer = [call for call in selected if not any(call.path.startswith(other.path + ".") for other in selected)]
    if all(call.given.shape == call.returned.shape for call in outer):
        return []
    inside = [[call for call in calls if call.path.startswith(stage.path + ".")] for stage in outer]
    chains = [chain for stage in inside for chain in chains_of(stage)]
    return chains if len(chains) > 1 else []


def differ_in_width(chains: list[Calls]) -> bool:
    """Return whether the states of several stacks of like blocks differ in width: the model is hierarchical."""
    kinds = {type(chain[0].module) for chain in chains}
    return len(chains) > 1 and len(kinds) == 1 and len({chain[-1].returned.shape[-1] for chain in chains}) > 1
