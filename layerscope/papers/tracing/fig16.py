"""T-fig16: aligned training lowers NC1, the spread within classes, across layers."""

from __future__ import annotations

import numpy as np

from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import mean
from layerscope.papers.recipe import TRACING, Claim, Evidence, Recipe
from layerscope.papers.vision import ALIGNED, BOTH, LACKS, SCALES, STANDARD, Bench, needs


def judge(assets: Assets) -> Evidence:
    """Compare the logarithm of NC1, on average over the layers before the last."""
    bench = Bench(assets)
    logs = {
        name: [float(np.log10(curve.iloc[:-1]).mean()) for curve in bench.curves(kind, "nc1")]
        for name, kind in BOTH.items()
    }
    curves = {name: np.log10(bench.average(kind, "nc1")) for name, kind in BOTH.items()}
    return Evidence(
        {"nc1": mean([b - a for a, b in zip(*logs.values(), strict=True)])},
        plots=[drawing.chart("NC1 by layer", "log10 of NC1", curves)],
    )


RECIPE = Recipe(
    "T-fig16", TRACING, "Aligned training lowers NC1 across layers",
    (
        Claim(
            "nc1", "After aligned training, samples of a class lie closer together (lower NC1) at the earlier layers.",
            "log10 of NC1, aligned minus standard, mean over layers before the last", 0.0, "below", "seeds",
        ),
    ),
    judge, SCALES, needs(STANDARD, ALIGNED), lacks=LACKS,
)  # fmt: skip
