"""The samples that a model is probed with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from layerscope.core.errors import LayerscopeError
from layerscope.inputs.pairs import Ids
from layerscope.models.encode import Encoder, TextEncoder

PROBE_TOKENS = 24


def probe_sample(encoder: Encoder, samples: Sequence[Any]) -> Any:
    """Return the sample a model is probed with: the longest, or of texts some tokens."""
    if isinstance(encoder, TextEncoder):
        rows = encoder.ids(samples)
        one = next((row[0] for row in rows if row), 0)
        # two tokens at least: among like ones attention, causal or not, and every head would look alike
        ids = next((row for row in rows if len(set(row)) > 1), [one, 0 if one else 1])
        return Ids(tuple((ids * PROBE_TOKENS)[: min(PROBE_TOKENS, encoder.max_length)]))
    lengths = encoder.lengths(samples)
    if max(lengths) == 0:
        raise LayerscopeError("the sounds are too short for this model to give a single state: give longer ones")
    return samples[max(range(len(samples)), key=lambda i: lengths[i])]


def beginning(sample: Any, share: float) -> Any:
    """Return the first part of a probe's text or of a sound; of what has one size the whole."""
    if isinstance(sample, Ids):
        return Ids(sample.ids[: max(1, int(share * len(sample.ids)))])
    wave = getattr(sample, "samples", None)
    return sample if wave is None else replace(sample, samples=wave[: max(1, int(share * len(wave)))])


def mate(sample: Any) -> Any:
    """Return another sample of the same size: the first backwards, or upside down."""
    if isinstance(sample, Ids):
        return Ids(sample.ids[::-1])
    if hasattr(sample, "rotate"):
        return sample.rotate(180)
    wave = getattr(sample, "samples", None)
    return torch.as_tensor(sample).flip(-1) if wave is None else replace(sample, samples=wave[::-1].copy())


def beginnings(encoder: Encoder, samples: Sequence[Any]) -> Sequence[Any]:
    """Return samples, of texts only the first tokens."""
    if not isinstance(encoder, TextEncoder):
        return samples
    return [Ids(tuple(row[:PROBE_TOKENS])) for row in encoder.ids(samples) if row]
