"""T-fig3: trainings whose layers are more like the last one make more samples saturate early."""

from __future__ import annotations

import pandas as pd

from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import mean
from layerscope.papers.recipe import TRACING, Claim, Evidence, Number, Recipe
from layerscope.papers.vision import ALIGNED, ALWAYS, CKA, COSINE, LACKS, SCALES, STANDARD, UNIFORM, Bench, needs

KINDS = {
    "standard": STANDARD, "cosine regulariser": COSINE, "CKA regulariser": CKA, "aligned": ALIGNED,
    "always aligned": ALWAYS, "aligned, uniform weights": UNIFORM,
}  # fmt: skip


def judge(assets: Assets) -> Evidence:
    """Correlate both over trainings, each a mean over the layers before the last, seed by seed."""
    bench = Bench(assets)
    table = pd.DataFrame(
        [
            {"kind": name, "seed": seed, "cosine": cosine.iloc[:-1].mean(), "saturated": 100 * early.iloc[:-1].mean()}
            for name, kind in KINDS.items()
            for seed, (cosine, early) in enumerate(
                zip(bench.curves(kind, "cosine_similarity"), bench.curves(kind, "saturated"), strict=True)
            )
        ]
    )
    found = [rows[["cosine", "saturated"]].corr("spearman").iloc[0, 1] for _, rows in table.groupby("seed")]
    averages = table.groupby("kind", sort=False)[["cosine", "saturated"]].mean()
    numbers = [Number(f"{kind}: {name}", value) for kind, row in averages.iterrows() for name, value in row.items()]
    curves = {name: bench.average(kind, "saturated", 100) for name, kind in KINDS.items()}
    return Evidence(
        {"spearman": mean(found)}, numbers, [drawing.chart("Saturated samples by layer", "%", curves)],
    )  # fmt: skip


RECIPE = Recipe(
    "T-fig3", TRACING, "Where layers are closer to the last one, more samples saturate early",
    (
        Claim(
            "spearman", "Trainings that bring the layers closer to the last one make more samples saturate early.",
            "Spearman correlation of centred cosine to the last layer with the share of saturated samples, over six "
            "trainings, each averaged over the layers before the last",
            0.5, "above", "seeds",
        ),
    ),
    judge, SCALES, needs(*KINDS.values()), lacks=LACKS,
)  # fmt: skip
