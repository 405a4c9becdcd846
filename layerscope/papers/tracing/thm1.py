"""T-thm1: cosine similarity to a later layer rises with depth, for states that move along a straight line."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from layerscope import metrics
from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import exact, mean
from layerscope.papers.recipe import TRACING, Claim, Evidence, Recipe
from layerscope.papers.tracing.fig1 import METRICS
from layerscope.papers.vision import ALIGNED, BOTH, LACKS, SCALES, STANDARD, Bench, needs


def judge(assets: Assets) -> Evidence:
    """Count monotone triples of layers, measure the distance from the straight line, and check the derivative."""
    bench = Bench(assets, METRICS)
    found, curves = {"derivative": exact(derivative_error())}, {}
    for name, kind in BOTH.items():
        states = bench.states(kind)
        found[f"order {name}"] = mean([100 * float(metrics.monotone_share(each[:, 1:]).mean()) for each in states])
        away = [metrics.line_distance(each).mean(0) for each in states]
        found[f"line {name}"] = mean([float(each.mean()) for each in away])
        curves[name] = drawing.by_layer(np.mean([each.numpy() for each in away], axis=0), first=1)
    return Evidence(found, plots=[drawing.chart("Distance from the straight line", "share of its length", curves)])


def derivative_error() -> float:
    """Return how far the derivative of cos((1 − x) a + x b, b) is from (1 − c²)(1 − x) / ‖·‖³ at most, and from ≥ 0.

    `a` and `b` have length 1 and cosine c; central differences in float64.
    """
    x, c = np.meshgrid(np.linspace(0.01, 0.99, 99), np.linspace(-0.9, 0.99, 64))

    def length(at: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.sqrt((1 - at) ** 2 + at**2 + 2 * at * (1 - at) * c)

    def cosine(at: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(((1 - at) * c + at) / length(at))

    step = 1e-5
    formula = (1 - c**2) * (1 - x) / length(x) ** 3
    slopes = (cosine(x + step) - cosine(x - step)) / (2 * step)
    return float(max(np.abs(slopes - formula).max(), -formula.min()))


RECIPE = Recipe(
    "T-thm1", TRACING, "Theorem 2.1: similarity to a later layer rises with depth",
    (
        Claim(
            "derivative", "Along the straight line h = (1 − x) a + x b, with a and b of length 1 and cosine c, the "
            "cosine of h to b never falls: its derivative is (1 − c²)(1 − x)/‖h‖³.",
            "largest error of the derivative on a grid of x and c, or its depth below 0", 1e-6, "below", "computed",
        ),
        *(
            Claim(
                f"order {name}", f"In {word} model, of any three layers the middle one is more similar to the last "
                "than the first is.",
                "share of triples of layers 1 … L so ordered by uncentred cosine, mean over "
                "samples, percent", 90.0, "above", "seeds",
            )
            for name, word in (("standard", "a standard"), ("aligned", "an aligned"))
        ),
        *(
            Claim(
                f"line {name}", f"In {word} model, states move along a straight line (assumption 1).",
                "distance from the line through layers 0 and L over the distance between the two, mean over "
                "samples and inner layers", 0.25, "below", "seeds",
            )
            for name, word in (("standard", "a standard"), ("aligned", "an aligned"))
        ),
    ),
    judge, SCALES, needs(STANDARD, ALIGNED, metrics=METRICS), lacks=LACKS,
    note="The printed derivative differs from this one; the conclusion is the same",
)  # fmt: skip
