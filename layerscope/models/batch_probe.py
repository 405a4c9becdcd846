"""How a model may be batched: whether other samples in a batch, or padding, change the states of one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.inputs.pairs import Ids
from layerscope.models.forward import Inputs
from layerscope.models.layered import LayeredModel

SHARES = (0.5, 0.81)
"""How much of a sample is put beside the whole: convolutions end differently on lengths that nothing divides."""
ROUNDING = {2: 4e-3, 4: 1e-5, 8: 1e-5}
"""Bytes of a number to the share of a state that rounding may change: some of its last places."""
BATCHED = {2: 5e-2, 4: 1e-4, 8: 1e-4}
"""The same where a batch of another size is computed in another order."""
ALONE = "other samples in a batch change this model's states: every sample is run alone"
BATCH_ON_AXIS_1 = "reads its batch on axis 1, [T, B, D], and gets [B, T, D]: build it with `batch_first=True`"
UNPADDED = (
    "padding changes this model's states: batches hold only samples of equal length"
)
States = dict[str, Tensor]
"""Of one small batch, by site and layer, such as `raw.3`."""


def beginning(sample: Any, share: float) -> Any:
    """Return the first part of a probe's text or of a sound; of what has one size the whole."""
    if isinstance(sample, Ids):
        length = max(1, int(share * len(sample.ids)))
        return Ids(sample.ids[:length])
    wave = getattr(sample, "samples", None)
    if wave is None:
        return sample
    length = max(1, int(share * len(wave)))
    return replace(sample, samples=wave[:length])


def states_of(model: LayeredModel, inputs: Inputs) -> States:
    """Return all states of a small batch."""
    states: States = {}

    def keep(layer: int, site: str, tokens: Tensor) -> None:
        states[f"{site}.{layer}"] = tokens.clone()

    model.run(inputs.to(model.device), keep)
    return states


def tested_in_batches(model: LayeredModel, sample: Any, alone: States) -> LayeredModel:
    """Test whether another sample beside it, or padding, changes a sample's states, and note what follows."""
    pair = model.encoder.batch([sample, _mate(sample)])
    if not agree(alone, states_of(model, pair)):
        _refuse_batch_on_axis_1(model, sample, alone)
        return replace(model, batching=False, notes=(*model.notes, ALONE))
    short, other = (beginning(sample, share) for share in SHARES)
    if short is sample or model.rank != 3:
        return model
    if all(_stands_padding(model, each, sample) for each in (short, other)):
        return model
    return replace(model, padding=False, notes=(*model.notes, UNPADDED))


def _refuse_batch_on_axis_1(model: LayeredModel, sample: Any, alone: States) -> None:
    """Raise for a module that mixes samples but none of the tokens of one: it takes tokens for samples."""
    if model.rank != 3 or model.encoder.modality != "tensor" or model.tokens < 2:
        return
    changed = torch.as_tensor(sample).clone()
    changed[0] = changed[0].flip(-1)
    # in a causal model, too, later tokens read the first one
    before = {key: states[:, 1:] for key, states in alone.items()}
    changed_states = states_of(model, model.encoder.batch([changed]))
    after = {key: states[:, 1:] for key, states in changed_states.items()}
    if agree(before, after):
        raise LayerscopeError(f"{model.name} {BATCH_ON_AXIS_1}")


def _mate(sample: Any) -> Any:
    """Return another sample of the same size: the first backwards, or upside down."""
    if isinstance(sample, Ids):
        return Ids(sample.ids[::-1])
    if hasattr(sample, "rotate"):
        return sample.rotate(180)
    if hasattr(sample, "samples"):
        return replace(sample, samples=sample.samples[::-1].copy())
    return torch.as_tensor(sample).flip(-1)


def _stands_padding(model: LayeredModel, short: Any, long: Any) -> bool:
    """Return whether a sample beside a longer one keeps its states, and as many of them as it has alone."""
    single = model.encoder.batch([short]).to(model.device)
    pair = model.encoder.batch([short, long]).to(model.device)
    alone = states_of(model, single)
    both = states_of(model, pair)
    length = _real(model, single, alone)
    return _real(model, pair, both) == length and agree(alone, both, length)


def _real(model: LayeredModel, inputs: Inputs, states: States) -> int:
    """Return how many states of the first sample are real."""
    tokens = states["raw.0"]
    mask = model.mask(inputs, tokens)
    if mask is None:
        return tokens.shape[1]
    return int(mask[0].sum())


def agree(
    one: States,
    two: States,
    length: int | None = None,
    tolerances: Mapping[int, float] = BATCHED,
) -> bool:
    """Return whether the first states of the first sample are the same."""
    for key, states in one.items():
        if states.ndim != two[key].ndim:
            return False
        a = states[0, :length].float()
        b = two[key][0, :length].float()
        if a.shape != b.shape:
            return False
        if not bool(torch.isfinite(a).all()):
            continue  # reported by the pass, with its sample
        tolerance = tolerances[states.dtype.itemsize]
        # token by token: next to one massive activation any other difference would look small
        errors = (a - b).norm(dim=-1)
        if bool((errors > tolerance * a.norm(dim=-1)).any()):
            return False
    return True
