"""Rows of an evaluation that are no single layer: mixes of layers, as probes score them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from layerscope.evaluation.probe_states import Pooled, ProbeTask, Tokens
from layerscope.probes import ProbeScore
from layerscope.probes.mixes import ONE_LAYER, Weights, fixed_mixes, linear_mixes


def mixes_of(
    task: ProbeTask,
    states: Pooled | Tokens,
    layers: Sequence[int],
    depth: int,
    at: Sequence[str],
    known: Mapping[int, ProbeScore],
    seed: int,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the mixes of layers at one site and pooling, by name, with their values as `ProbeScores` keeps them.

    `known` are scores of layers there that were judged before; what a kind of probe learns no mix for has no gain.
    """
    slot = layers[-1], at[0], at[1]
    if task.kind.learns_mixes:
        for name, mix in linear_mixes(partial(states.layer, slot), layers, depth, known, seed=seed):
            gain = {} if name == ONE_LAYER else {"gain": mix.gain, "gain_error": mix.gain_error}
            yield name, values_of(mix.score, mix.weights) | gain
    else:
        for name, weights in fixed_mixes(layers, depth).items():
            yield name, values_of(task.score(states.layer(slot, weights), seed), weights)


def values_of(score: ProbeScore, weights: Weights) -> dict[str, Any]:
    """Return what is kept of a mix."""
    return asdict(score) | {"score": score.mean, "weights": as_text(weights)}


def as_text(weights: Weights) -> str:
    """Return weights as `truncate` takes them: of 3 and 6 `3=0.4,6=0.6`, of equal ones `3,6`."""
    equal = len(set(weights.values())) == 1
    return ",".join(str(layer) if equal else f"{layer}={weight:.6g}" for layer, weight in weights.items())
