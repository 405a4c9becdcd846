"""L-fig3 and L-fig8: which metrics follow the scores, layer by layer."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.papers import drawing, released
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import bootstrap
from layerscope.papers.recipe import LAYERS, Claim, Evidence, Number, Recipe
from layerscope.scores.statistics import distance_correlation, kendall, spearman

MODEL = "Pythia-410m"
STRONG = ("curvature", "dime", "infonce")
OTHERS = ("prompt_entropy", "dataset_entropy", "lidar")


def judge(assets: Assets) -> Evidence:
    """Correlate each metric, averaged over data sets, with the mean score over resampled tasks."""
    frame = released.metrics(assets)
    frame = frame[(frame["model"] == MODEL) & frame["dataset"].str.startswith(released.TASKS_OF)]
    table = released.scores(assets).table(MODEL, "main").dropna(axis=1).iloc[1:]
    averages = {name: _average(frame, name) for name in (*STRONG, *OTHERS)}
    layers = sorted(set(table.index).intersection(*(curve.index for curve in averages.values())))
    curves = {name: curve[layers].to_numpy() for name, curve in averages.items()}

    def lead(tasks: npt.NDArray[np.float64]) -> float:
        by_metric = {name: float(distance_correlation(curve, tasks.mean(axis=0))) for name, curve in curves.items()}
        return float(np.mean([by_metric[name] for name in STRONG]) - np.mean([by_metric[name] for name in OTHERS]))

    tasks = table.loc[layers].to_numpy().T
    statistics = {"distance correlation": distance_correlation, "Spearman": spearman, "Kendall": kendall}
    numbers = []
    for name, curve in curves.items():
        for label, statistic in statistics.items():
            found = bootstrap(tasks, lambda rows, s=statistic, c=curve: s(c, rows.mean(axis=0)))  # type: ignore[misc]
            numbers.append(Number(f"{label} of {name} with the mean score", found.value, found.low, found.high))
    plot = drawing.bars("Correlation with the mean MTEB score", "distance correlation", numbers[:: len(statistics)])
    return Evidence({"lead": bootstrap(tasks, lead)}, numbers, [plot], released.flagged(frame))


def _average(frame: pd.DataFrame, metric: str) -> pd.Series:
    """Return a metric by layer, the mean over the data sets that have it at every layer."""
    variant = "raw" if "raw" in set(frame.loc[frame["metric"] == metric, "variant"]) else "maxEntropy"
    return released.curves(frame, metric, variant).dropna(axis=1).mean()


RECIPE = Recipe(
    "L-fig3", LAYERS, "Curvature, DiME and InfoNCE follow the scores most closely",
    (
        Claim(
            "lead", "Curvature, DiME and InfoNCE follow the mean score more closely than the entropies and LiDAR do.",
            "distance correlation with the mean score over layers, mean of these three metrics minus that of "
            "the others",
            0.0, "above", "tasks",
        ),
    ),
    judge, {"published": None},
    lacks={
        "small": "scores on 32 tasks by layer (layerscope scores correlates metrics with scores of your own)",
        "paper": "Pythia-410M on 32 tasks of MTEB, from the hub",
    },
    note=released.NOTE,
)  # fmt: skip
