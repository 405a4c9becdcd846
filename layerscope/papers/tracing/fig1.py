"""T-fig1: aligned training raises every layer's similarity to the last, its accuracy and its saturation."""

from __future__ import annotations

import pandas as pd

from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import mean
from layerscope.papers.recipe import TRACING, Claim, Evidence, Recipe
from layerscope.papers.vision import ALIGNED, BOTH, LACKS, SCALES, STANDARD, Bench, needs, to_last

METRICS = "cosine_similarity,cka"


def judge(assets: Assets) -> Evidence:
    """Compare aligned and standard training seed by seed, on average over the layers before the last."""
    bench = Bench(assets, METRICS)
    cosines = {name: [to_last(run) for run in bench.runs(kind)] for name, kind in BOTH.items()}
    found = {
        "cosine": mean([float((a - b).iloc[:-1].mean()) for a, b in zip(*reversed(cosines.values()), strict=True)]),
        "accuracy": bench.gain(ALIGNED, STANDARD, "layer_accuracy", 100),
        "saturation": bench.gain(ALIGNED, STANDARD, "saturated", 100),
    }
    averages = {name: pd.concat(curves, axis=1).mean(axis=1) for name, curves in cosines.items()}
    plots = [drawing.chart("Cosine similarity to the last layer", "cosine, centred", averages)]
    for title, metric in (("Accuracy by layer", "layer_accuracy"), ("Saturated samples by layer", "saturated")):
        plots.append(drawing.chart(title, "%", {n: bench.average(kind, metric, 100) for n, kind in BOTH.items()}))
    return Evidence(found, plots=plots)


RECIPE = Recipe(
    "T-fig1", TRACING, "Aligned training brings every layer closer to the last",
    (
        Claim(
            "cosine", "Aligned training makes the earlier layers more similar to the last one.",
            "centred cosine to the last layer, aligned minus standard, mean over layers before the last",
            0.0, "above", "seeds",
        ),
        Claim(
            "accuracy", "Aligned training raises the accuracy of the layers before the last.",
            "accuracy, aligned minus standard, percentage points, mean over layers before the last",
            0.0, "above", "seeds",
        ),
        Claim(
            "saturation",
            "After aligned training, more samples have settled on their final prediction before the last layer.",
            "share of saturated samples, aligned minus standard, percentage points, mean over layers before the last",
            0.0, "above", "seeds",
        ),
    ),
    judge, SCALES, needs(STANDARD, ALIGNED, metrics=METRICS), lacks=LACKS,
)  # fmt: skip
