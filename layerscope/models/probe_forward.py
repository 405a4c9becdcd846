"""The samples that a model is probed with, and what they show of how it may be batched."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.inputs.pairs import Ids
from layerscope.models.encode import Encoder, TextEncoder
from layerscope.models.forward import Inputs

if TYPE_CHECKING:
    from layerscope.models.layered import LayeredModel

PROBE_TOKENS = 24
SHARES = (0.81, 0.62)
"""Of a sound, besides its half: convolutions end differently on lengths that nothing divides."""


def probe_sample(encoder: Encoder, samples: Sequence[Any]) -> Any:
    """Return the sample a model is probed with: the longest, or of texts some tokens."""
    if isinstance(encoder, TextEncoder):
        rows = encoder.ids(samples)
        one = next((row[0] for row in rows if row), 0)
        # two tokens at least: among like ones attention, causal or not, and every head would look
        # alike
        ids = next((row for row in rows if len(set(row)) > 1), [one, 0 if one else 1])
        return Ids(tuple((ids * PROBE_TOKENS)[: min(PROBE_TOKENS, encoder.max_length)]))
    lengths = encoder.lengths(samples)
    if max(lengths) == 0:
        raise LayerscopeError("the sounds are too short for this model: give longer ones")
    return samples[max(range(len(samples)), key=lambda i: lengths[i])]


def beginning(sample: Any, share: float) -> Any:
    """Return the first part of a probe's text or of a sound; of what has one size the whole."""
    if isinstance(sample, Ids):
        return Ids(sample.ids[: max(1, int(share * len(sample.ids)))])
    wave = getattr(sample, "samples", None)
    return (
        sample if wave is None else replace(sample, samples=wave[: max(1, int(share * len(wave)))])
    )


def _mate(sample: Any) -> Any:
    """Return another sample of the same size: the first backwards, or upside down."""
    if isinstance(sample, Ids):
        return Ids(sample.ids[::-1])
    if hasattr(sample, "rotate"):
        return sample.rotate(180)
    wave = getattr(sample, "samples", None)
    return (
        torch.as_tensor(sample).flip(-1)
        if wave is None
        else replace(sample, samples=wave[::-1].copy())
    )


def states_of(model: "LayeredModel", inputs: Inputs | list[Any]) -> dict[str, Tensor]:
    """Return all states of a small batch, or of samples, by site and layer."""
    states: dict[str, Tensor] = {}
    batch = inputs if isinstance(inputs, Inputs) else model.encoder.batch(inputs)
    model.run(
        batch.to(model.device),
        lambda layer, site, tokens: states.__setitem__(f"{site}.{layer}", tokens.clone()),
    )
    return states


def tested_in_batches(
    model: "LayeredModel", short: Any, long: Any, alone: dict[str, Tensor]
) -> "LayeredModel":
    """Test whether another sample beside it, or padding, changes a sample's states, and note what follows."""
    together = states_of(model, [long, _mate(long)])
    if not _agree(alone, {key: states[:1] for key, states in together.items()}):
        _refuse_other_axis(model, long, alone)
        note = "other samples in a batch change this model's states: every sample is run alone"
        return replace(model, batching=False, notes=(*model.notes, note))
    if short is not long and model.rank == 3:
        others = (
            [beginning(long, share) for share in SHARES]
            if model.encoder.modality == "audio"
            else []
        )
        if not all(_stands_padding(model, one, long) for one in (short, *others)):
            note = "padding changes this model's states: batches hold only samples of equal length"
            return replace(model, padding=False, notes=(*model.notes, note))
    return model


def _refuse_other_axis(model: "LayeredModel", sample: Any, alone: dict[str, Tensor]) -> None:
    """Raise for a model that mixes samples but none of the tokens of one: it reads its batch on axis 1, [T, B, D]."""
    if model.rank != 3 or model.encoder.modality != "tensor" or model.tokens < 2:
        return
    half = model.tokens // 2
    changed = torch.as_tensor(sample).clone()
    changed[:half] = changed[:half].flip(-1)
    later = {key: states[:, half:] for key, states in states_of(model, [changed]).items()}
    if _agree({key: states[:, half:] for key, states in alone.items()}, later):
        raise LayerscopeError(
            f"{model.loaded.name} reads its batch on axis 1, [T, B, D], and gets [B, T, D]: build it with "
            "`batch_first=True`, or give a module whose forward transposes what it reads and gives"
        )


def _stands_padding(model: "LayeredModel", short: Any, long: Any) -> bool:
    """Return whether a sample beside a longer one keeps its states, and as many of them as it has alone."""
    batches = [
        model.encoder.batch(samples).to(model.device) for samples in ([short], [short, long])
    ]
    alone, both = (states_of(model, batch) for batch in batches)
    first, beside = (
        model.mask(batch, own["raw.0"]) for batch, own in zip(batches, (alone, both), strict=True)
    )
    real = alone["raw.0"].shape[1] if first is None else int(first[0].sum())
    if beside is not None and int(beside[0].sum()) != real:
        return False
    return _agree(
        {k: v[:, :real] for k, v in alone.items()}, {k: v[:1, :real] for k, v in both.items()}
    )


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
