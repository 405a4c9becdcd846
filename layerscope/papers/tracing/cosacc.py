"""T-cosacc: similarity to the last layer goes with accuracy, over layers and models."""

from __future__ import annotations

import pandas as pd

from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import mean
from layerscope.papers.recipe import TRACING, Claim, Evidence, Recipe
from layerscope.papers.tracing.fig1 import METRICS
from layerscope.papers.vision import ALIGNED, LACKS, SCALES, STANDARD, Bench, needs, to_last


def judge(assets: Assets) -> Evidence:
    """Correlate both over the layers of a standard and an aligned model together, seed by seed."""
    bench = Bench(assets, METRICS)
    points = {kind: [_points(r, h) for r, h in zip(bench.runs(kind), bench.histories(kind), strict=True)]
              for kind in (STANDARD, ALIGNED)}  # fmt: skip
    both = [pd.concat(pair) for pair in zip(*points.values(), strict=True)]
    names = {"standard": STANDARD, "aligned": ALIGNED}
    curves = {name: pd.concat(points[kind]).groupby(level=0)["accuracy"].mean() for name, kind in names.items()}
    return Evidence(
        {"spearman": mean([float(found.corr("spearman").iloc[0, 1]) for found in both])},
        plots=[drawing.chart("Accuracy by layer", "%", curves)],
    )


def _points(run: object, history: object) -> pd.DataFrame:
    cosine, accuracy = to_last(run), 100 * history.metric("layer_accuracy")  # type: ignore[arg-type, attr-defined]
    return pd.concat([cosine.rename("cosine"), accuracy.rename("accuracy")], axis=1, join="inner").iloc[:-1]


RECIPE = Recipe(
    "T-cosacc", TRACING, "Layers more similar to the last one are more accurate",
    (
        Claim(
            "spearman", "The more similar a layer is to the last one, the more accurate it is.",
            "Spearman correlation of centred cosine to the last layer with accuracy, over the earlier layers "
            "of a standard and an aligned model together",
            0.5, "above", "seeds",
        ),
    ),
    judge, SCALES, needs(STANDARD, ALIGNED, metrics=METRICS), lacks=LACKS,
)  # fmt: skip
