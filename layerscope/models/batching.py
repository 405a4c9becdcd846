"""How a model may be batched: whether batch-mates or padding change a sample's states."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from layerscope.models.forward import Inputs
from layerscope.models.probe import beginning, mate

if TYPE_CHECKING:
    from layerscope.models.layered import LayeredModel

SHARES = (0.81, 0.62)
"""Of a sound, besides its half: convolutions end differently on lengths that nothing divides."""


def states_of(model: LayeredModel, samples: list[Any]) -> dict[str, Tensor]:
    """All states of a small batch, by site and layer."""
    return visited_states(model, model.encoder.batch(samples))


def visited_states(model: LayeredModel, inputs: Inputs) -> dict[str, Tensor]:
    """All states of a batch, by site and layer."""
    states: dict[str, Tensor] = {}
    model.run(
        inputs.to(model.device), lambda layer, site, tokens: states.__setitem__(f"{site}.{layer}", tokens.clone())
    )
    return states


def tested_in_batches(model: LayeredModel, short: Any, long: Any, alone: dict[str, Tensor]) -> LayeredModel:
    """Test whether another sample beside it, or padding, changes a sample's states, and note what follows."""
    notes = list(model.notes)
    together = {key: states[:1] for key, states in states_of(model, [long, mate(long)]).items()}
    batching = _agree(alone, together)
    padding = True
    if not batching:
        notes.append("batch-mates change this model's states: every sample is run alone")
    elif short is not long and model.rank == 3:
        others = [beginning(long, share) for share in SHARES] if model.encoder.modality == "audio" else []
        padding = all(_stands_padding(model, one, long) for one in (short, *others))
        if not padding:
            notes.append("padding changes this model's states: batches hold samples of one length only")
    return replace(model, padding=padding, batching=batching, notes=tuple(notes))


def _stands_padding(model: LayeredModel, short: Any, long: Any) -> bool:
    """Return whether a sample beside a longer one keeps its states, and as many of them as it has alone."""
    alone, both = states_of(model, [short]), states_of(model, [short, long])
    first, beside = (
        model.mask(model.encoder.batch(samples).to(model.device), states["raw.0"])
        for samples, states in (([short], alone), ([short, long], both))
    )
    real = None if first is None else int(first[0].sum())
    if beside is not None and int(beside[0].sum()) != (alone["raw.0"].shape[1] if real is None else real):
        return False
    padded = {key: states[:1, : alone[key].shape[1]] for key, states in both.items()}
    return _agree({k: v[:, :real] for k, v in alone.items()}, {k: v[:, :real] for k, v in padded.items()})


def _agree(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    for key, states in one.items():
        if states.shape != two[key].shape:
            return False
        if not bool(torch.isfinite(states).all()):
            continue  # reported by the pass, with its sample
        tolerance = 1e-4 if states.dtype in (torch.float32, torch.float64) else 5e-2
        # token by token: next to one massive activation any other difference would look small
        if bool(((states - two[key]).norm(dim=-1) > tolerance * states.norm(dim=-1)).any()):
            return False
    return True
