"""L-thm1: effective rank and the exponential of the entropy S₁, one of which bounds the other."""

from __future__ import annotations

import math

import numpy as np

from layerscope import metrics
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import exact
from layerscope.papers.recipe import LAYERS, Claim, Evidence, Number, Recipe

TRIALS = 200


def judge(assets: Assets) -> Evidence:
    """Compare both for matrices of many shapes and spectra."""
    draws, ratios = np.random.default_rng(0), []
    for _ in range(TRIALS):
        rows, columns = draws.integers(2, 40, size=2)
        spectrum = np.arange(1, columns + 1) ** -draws.uniform(0, 2)
        states = draws.normal(size=(rows, columns)) * spectrum
        ratios.append(_rank(states) - _entropy(states))
    return Evidence(
        {"printed": exact(max(ratios)), "reverse": exact(min(ratios))},
        [Number("log(effective rank) − S1, mean over matrices", float(np.mean(ratios)))],
        notes=["Effective rank is exp of the entropy of the singular values; S₁ is the entropy of their squares."],
    )


def _rank(states: np.ndarray) -> float:
    return math.log(float(metrics.effective_rank(states)))


def _entropy(states: np.ndarray) -> float:
    return float(metrics.matrix_entropy(states, rows="raw"))


RECIPE = Recipe(
    "L-thm1", LAYERS, "Effective rank against the exponential of S₁",
    (
        Claim(
            "printed", "Theorem 1 as printed: effective rank is at most exp(S₁).",
            f"largest log(effective rank) − S₁ over {TRIALS} random matrices, nats", 1e-9, "below", "computed",
        ),
        Claim(
            "reverse",
            "The reverse of theorem 1: effective rank is at least exp(S₁), as squaring concentrates a spectrum.",
            f"smallest log(effective rank) − S₁ over {TRIALS} random matrices, nats", -1e-9, "above", "computed",
        ),
    ),
    judge, {"small": None, "published": None, "paper": None},
)  # fmt: skip
