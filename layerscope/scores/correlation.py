"""How metrics by layer correlate with scores by layer.

Of a model with 12 layers and 32 tasks a metric is 12 numbers, and the scores averaged over tasks
are 12 more: one correlation. Other tasks would have given other averages. Intervals therefore draw
32 of the tasks again and again, with replacement, and correlate the metric with each new average.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd

from layerscope.core import (
    SEED,
    LayerscopeError,
    Options,
    Whole,
    checked,
    choices,
    near,
)
from layerscope.scores.grids import Grid, candidates, groups
from layerscope.scores.metric_values import CURVE, curves
from layerscope.scores.statistics import STATISTICS

if TYPE_CHECKING:
    from layerscope.scores.evaluation import Evaluation
    from layerscope.scores.metric_values import Metrics

FEWEST = 3
"""Layers below which there is no correlation."""
COLUMNS = (
    "model", "revision", "scored_site", "scored_pooling", "corpus", "metric", "variant", "site", "pooling",
    "statistic", "estimate", "low", "high", "layers", "tasks",
)  # fmt: skip


def correlate(
    metrics: "Metrics",
    evaluation: "Evaluation",
    *,
    statistics: Sequence[str] = tuple(STATISTICS),
    bootstrap: Annotated[int, Whole(0)] = 1000,
    seed: Annotated[int, SEED] = 0,
) -> pd.DataFrame:
    """Return the correlation of each metric by layer with the mean score over tasks by layer.

    `metrics` is what `open_metrics` takes or returns, or `corpus_averages` of it; layer 0
    is left out, so are layers where the metric has no value; tasks are as
    in `Evaluation.summary`. `statistics` are some of spearman, kendall, pearson and dcor (distance
    correlation). Columns: those of `COLUMNS`; a correlation of fewer than 3 layers is NaN.

    The intervals, `low` to `high`, resample **tasks**, layers held fixed: tasks are a sample of
    what a layer may be used for, layers are all there are. They are 95 % percentiles of `bootstrap`
    resamples (0: NaN), the same draws for every metric; NaN for one task.

    Source: Skean et al. 2025, figures 3 and 8; Efron and Tibshirani 1993 for the percentile
    bootstrap.

    >>> from layerscope.scores import correlate, open_evaluation, open_metrics
    >>> table = correlate(open_metrics("metrics.csv"), open_evaluation("scores.csv"), bootstrap=0)
    >>> table.loc[table["statistic"] == "pearson", ["model", "metric", "estimate"]].round(2)
       model           metric  estimate
    2  small  dataset_entropy      -1.0
    6  large  dataset_entropy      -1.0
    """
    checked(correlate, locals(), Options)
    for name in statistics:
        if name not in STATISTICS:
            raise LayerscopeError(
                f"statistic {name!r} does not exist{choices(name, STATISTICS)}"
            )
    rows = []
    for about, grid, curve in pairs(curves(metrics), evaluation.grids()):
        complete = candidates(grid.complete)
        complete = complete[complete.index.isin(curve.index)]
        x = curve[complete.index].to_numpy()
        scores = complete.to_numpy(dtype=np.float64)
        layers, tasks = scores.shape
        draw = np.random.default_rng(seed)
        draws = draw.integers(0, max(tasks, 1), (bootstrap, tasks))
        for name in statistics:
            row = {**about, "statistic": name, "layers": layers, "tasks": tasks}
            if layers >= FEWEST and tasks:
                row["estimate"] = float(STATISTICS[name](x, scores.mean(1)))
            if layers >= FEWEST and tasks > 1 and bootstrap:
                resampled = STATISTICS[name](x[None], scores.T[draws].mean(1))
                finite = resampled[np.isfinite(resampled)]
                if len(finite):
                    row["low"], row["high"] = np.percentile(finite, [2.5, 97.5])
            rows.append(row)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def pairs(
    frame: pd.DataFrame, grids: Sequence[Grid]
) -> Iterator[tuple[dict[str, Any], Grid, pd.Series]]:
    """Yield each model's scores with each of its metrics as a series by layer; no common model is an error.

    Models are the same by name and revision; an empty revision fits any.
    """
    is_matched = False
    for grid in grids:
        scored = {f"scored_{key}": grid.about[key] for key in ("site", "pooling")}
        scored["revision"] = grid.about["revision"]
        for about, rows in groups(frame, CURVE):
            if not same_model(about, grid.about):
                continue
            is_matched = True
            curve = rows.astype({"layer": "int64"}).set_index("layer")["value"]
            values = curve.dropna().astype("float64")
            yield about | scored, grid, values.sort_index()
    if not is_matched:
        scored_models = sorted({grid.about["model"] for grid in grids})
        measured_models = sorted(frame["model"].unique())
        hint = near(measured_models[0], scored_models)
        raise LayerscopeError(
            f"no model has both metrics ({', '.join(measured_models[:5])}) and scores "
            f"({', '.join(scored_models[:5])}){hint}: name models and revisions alike in both"
        )


def same_model(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Return whether two models are the same by name and revision; an empty revision fits any.

    >>> same_model({"model": "a", "revision": ""}, {"model": "a", "revision": "main"})
    True
    """
    revisions = {a["revision"] or "", b["revision"] or ""} - {""}
    return a["model"] == b["model"] and len(revisions) < 2
