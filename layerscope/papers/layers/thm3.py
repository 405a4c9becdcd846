"""L-thm3: log N − InfoNCE is at most the information that views share, which is at most the entropy of states."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from layerscope import metrics
from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import mean
from layerscope.papers.recipe import LAYERS, Claim, Evidence, Number, Recipe

N, BATCHES, WIDTH = 256, 40, 64
SYMBOLS = (2, 4, 8, 16, 32, 64)


def judge(assets: Assets) -> Evidence:
    """Draw symbols whose information is known, and take the bound over batches of their states."""
    draws, gaps, numbers = np.random.default_rng(0), [], []
    for count in SYMBOLS:
        bounds = np.array([bound(draws.integers(count, size=N)) for _ in range(BATCHES)])
        gaps.append(bounds - math.log(count))
        numbers.append(Number(f"log N − InfoNCE, {count} symbols", float(bounds.mean())))
    most = max(gaps, key=lambda gap: float(gap.mean()))
    return Evidence(
        {"bound": mean(list(most))}, numbers, [drawing.bars("Bound on the information", "nats", numbers)],
    )  # fmt: skip


def bound(symbols: npt.NDArray[np.int64]) -> float:
    """Return log N − InfoNCE of views that both are their sample's symbol: I(X; Z) = H(Z) = log of their number."""
    states = np.eye(WIDTH)[symbols]
    return float(metrics.infonce_bound(states, states))


RECIPE = Recipe(
    "L-thm3", LAYERS, "log N − InfoNCE bounds the information that views share from below",
    (
        Claim(
            "bound", "log N − InfoNCE is at most the mutual information of the views, where that is known.",
            f"log N − InfoNCE − log K, nats, for the K of {SYMBOLS[0]} … {SYMBOLS[-1]} symbols where it is largest",
            0.0, "below", "batches",
        ),
    ),
    judge, {"small": None, "published": None, "paper": None},
)  # fmt: skip
