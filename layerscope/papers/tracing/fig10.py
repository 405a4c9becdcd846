"""T-fig10: cosine similarity to the last layer sample by sample: high, rising, and rarely negative."""

from __future__ import annotations

import numpy as np
import pandas as pd

from layerscope import metrics
from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import mean
from layerscope.papers.recipe import TRACING, Claim, Evidence, Number, Recipe
from layerscope.papers.tracing.fig1 import METRICS
from layerscope.papers.vision import LACKS, SCALES, STANDARD, Bench, needs


def judge(assets: Assets) -> Evidence:
    """Count negative cosines over samples and layers, and correlate medians with depth."""
    bench = Bench(assets, METRICS)
    cosines = [metrics.cosine_to(states)[:, 1:-1].numpy() for states in bench.states(STANDARD)]
    medians = [pd.Series(np.median(found, axis=0)) for found in cosines]
    least = min(float(found.min()) for found in cosines)
    return Evidence(
        {
            "negative": mean([100 * float((found < 0).mean()) for found in cosines]),
            "rises": mean([each.corr(each.index.to_series(), "spearman") for each in medians]),
        },
        [Number("lowest cosine of a sample at any layer", least)],
        [drawing.boxes("Cosine of each image to the last layer", "cosine, centred", cosines[0], first=1)],
    )


RECIPE = Recipe(
    "T-fig10", TRACING, "Sample by sample, similarity to the last layer rises and is rarely negative",
    (
        Claim(
            "negative", "The cosine of a sample's state to its state at the last layer is rarely negative.",
            "share of negative centred cosines over samples and layers 1 … L − 1, percent", 5.0, "below", "seeds",
        ),
        Claim(
            "rises", "The median cosine to the last layer rises with depth.",
            "Spearman correlation of the median centred cosine over samples with the layer number",
            0.9, "above", "seeds",
        ),
    ),
    judge, SCALES, needs(STANDARD, metrics=METRICS), lacks=LACKS,
)  # fmt: skip
