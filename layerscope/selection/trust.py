"""When a rule without labels may be followed: what its record on models held out must show."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from layerscope.scores.rules import Rule

if TYPE_CHECKING:
    from layerscope.runs import Run

MODELS = 2
"""Held-out models of the same kind that a rule must have been tried on."""
FAILED = 1 / 4
"""Share of its choices that may score less than the last layer, mean over models."""


def kind_of(run: Run) -> str | None:
    """Return what kind of model a run is of: causal, bidirectional, another modality's name, or None if unknown."""
    model = run.info["model"]
    if run.info["data"]["modality"] != "text":
        return str(run.info["data"]["modality"])
    pairs = run.info.get("pair_pooling") or (["position"] if run.info.get("position") else [])
    if model.get("language_model") or "position" in pairs:
        return "causal"
    # only where layers were compared do its pairs show whether a model is causal
    compared = "cosine_similarity" in run.info["options"]["metrics"]
    return "bidirectional" if compared and model.get("lens") != "pooled" else None


def distrust(rule: Rule, kind: str | None) -> str | None:
    """Return why a rule is not to be trusted for a model of this kind, or None where it is.

    It must have been tried on two held-out models of that kind, gain more than nothing, than a layer drawn at random
    and than a fixed share of depth chosen on the other models, fall behind the last layer in at most a quarter of its
    choices, and have had one direction in all of them. Every mean is over models, each that over its checkpoints.
    """
    tried = replace(rule, choices=tuple(choice for choice in rule.choices if choice.kind in (None, kind)))
    models = {choice.model for choice in tried.choices}
    checks = (
        (len(models) < MODELS, f"tried on {len(models)} held-out {kind or 'comparable'} models, {MODELS} are needed"),
        (not tried.mean_gain > 0, "gains nothing over the last layer on average"),
        (not tried.mean_gain > tried.chance_gain, "gains no more than a layer drawn at random"),
        (math.isnan(tried.fixed_gain), "was never compared with a fixed share of depth"),
        (not tried.mean_gain > tried.fixed_gain, "gains no more than a fixed share of depth"),
        (tried.failure_share > FAILED, f"fell behind the last layer {tried.failures} of {len(tried.choices)} times"),
        (tried.direction and tried.agreeing < len(tried.choices), "its direction differs between the models"),
    )
    return next((reason for wrong, reason in checks if wrong), None)
