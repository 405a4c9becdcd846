"""T-thm2: the probability of the label rises across layers, where states collapse onto their classes."""

from __future__ import annotations

import numpy as np

from layerscope import metrics
from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import mean
from layerscope.papers.recipe import TRACING, Claim, Evidence, Recipe
from layerscope.papers.tracing.fig1 import METRICS
from layerscope.papers.vision import ALIGNED, BOTH, LACKS, SCALES, STANDARD, Bench, needs

ALIKE = 0.1
"""Norms of neighbouring layers that the proof takes as equal differ by this share at most."""


def judge(assets: Assets) -> Evidence:
    """Look for drops of the label's probability, correlate NC1 with depth, and compare norms of neighbours."""
    bench = Bench(assets, METRICS)
    found = {}
    for name, kind in BOTH.items():
        found[f"rises {name}"] = mean([100 * c.diff().min() for c in bench.curves(kind, "label_probability")])
        found[f"nc1 {name}"] = mean(
            [c.corr(c.index.to_series(), "spearman") for c in bench.curves(kind, "nc1")]
        )  # fmt: skip
        found[f"norms {name}"] = mean(
            [100 * float(metrics.steady_norm(states[:, 1:], ALIKE).mean()) for states in bench.states(kind)]
        )
    curves = {name: bench.average(kind, "label_probability", 100) for name, kind in BOTH.items()}
    spread = {name: np.log10(bench.average(kind, "nc1")) for name, kind in BOTH.items()}
    return Evidence(
        found,
        plots=[
            drawing.chart("Probability of the label by layer", "%", curves),
            drawing.chart("NC1 by layer", "log10 of NC1", spread),
        ],
    )


def _claims(name: str, word: str) -> tuple[Claim, ...]:
    return (
        Claim(
            f"rises {name}",
            f"In {word} model, the probability of the label falls by less than a point from any layer to the next.",
            "lowest change of its mean over samples from one layer to the next, percentage points",
            -1.0, "above", "seeds",
        ),
        Claim(
            f"nc1 {name}", f"In {word} model, states collapse onto their classes with depth.",
            "Spearman correlation of NC1 with the layer number", -0.8, "below", "seeds",
        ),
        Claim(
            f"norms {name}", f"In {word} model, neighbouring layers have states of about the same norm, as the proof "
            "assumes.",
            f"share of samples and layers whose norm is within {100 * ALIKE:.0f} % of the layer before, percent",
            90.0, "above", "seeds",
        ),
    )  # fmt: skip


RECIPE = Recipe(
    "T-thm2", TRACING, "Theorem 2.2: the probability of the label rises across layers",
    (*_claims("standard", "a standard"), *_claims("aligned", "an aligned")),
    judge, SCALES, needs(STANDARD, ALIGNED, metrics=METRICS), lacks=LACKS,
)  # fmt: skip
