"""T-fig2: cosine similarity to the last layer follows CKA and accuracy by layer."""

from __future__ import annotations

import numpy as np
import pandas as pd

from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import mean
from layerscope.papers.recipe import TRACING, Claim, Evidence, Recipe
from layerscope.papers.tracing.fig1 import METRICS
from layerscope.papers.vision import ALIGNED, LACKS, SCALES, STANDARD, Bench, needs, to_last


def judge(assets: Assets) -> Evidence:
    """Correlate cosine with CKA and with accuracy over the layers of each standard model."""
    bench = Bench(assets, METRICS)
    runs = bench.runs(STANDARD)
    cosine, cka = [to_last(run) for run in runs], [to_last(run, "cka") for run in runs]
    accuracy = bench.curves(STANDARD, "layer_accuracy")
    pairs = [run.metric("cosine_similarity") for run in runs]
    found = {
        "cka": mean([_rho(a, b) for a, b in zip(cosine, cka, strict=True)]),
        "accuracy": mean([_rho(a, b) for a, b in zip(cosine, accuracy, strict=True)]),
        "positive": mean([float(np.nanmin(table.to_numpy())) for table in pairs]),
    }
    table = sum(pairs[1:], start=pairs[0]) / len(pairs)
    curves = {"cosine, centred": cosine, "CKA, biased": cka, "accuracy": accuracy}
    averages = {name: pd.concat(group, axis=1).mean(axis=1) for name, group in curves.items()}
    return Evidence(
        found,
        plots=[
            drawing.chart("Similarity to the last layer, and accuracy", "cosine, CKA, accuracy", averages),
            drawing.heat_map("Cosine similarity of every two layers", table, "layer", "layer"),
        ],
    )


def _rho(a: pd.Series, b: pd.Series) -> float:
    """Return Spearman's correlation of two curves over the layers before the last."""
    both = pd.concat([a, b], axis=1, join="inner").iloc[:-1]
    return float(both.corr("spearman").iloc[0, 1])


RECIPE = Recipe(
    "T-fig2", TRACING, "Cosine similarity follows CKA and accuracy by layer",
    (
        Claim(
            "cka", "Cosine similarity to the last layer rises where CKA rises.",
            "Spearman correlation of centred cosine with biased CKA, each to the last layer, over the earlier layers",
            0.5, "above", "seeds",
        ),
        Claim(
            "accuracy", "Cosine similarity to the last layer rises where accuracy rises.",
            "Spearman correlation of centred cosine to the last layer with accuracy, over the earlier layers",
            0.5, "above", "seeds",
        ),
        Claim(
            "positive", "On average over samples, no two layers point in opposite directions.",
            "lowest mean centred cosine of any two layers", 0.0, "above", "seeds",
        ),
    ),
    judge, SCALES, needs(STANDARD, ALIGNED, metrics=METRICS), lacks=LACKS,
)  # fmt: skip
