"""How metrics by layer correlate with scores by layer."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.core.errors import LayerscopeError, choices, near
from layerscope.core.option_kinds import SEED, Number, OneOf, Whole
from layerscope.core.options import Options, checked
from layerscope.scores.grids import MIN_SHARE, Grid, groups
from layerscope.scores.metric_values import CURVE, curves
from layerscope.scores.statistics import FEWEST, STATISTICS, Floats, Statistic

if TYPE_CHECKING:
    from layerscope.scores.evaluation import Evaluation
    from layerscope.scores.metric_values import Metrics

MEAN_SCORE = "mean score"
MEAN_OF_TASKS = "mean of tasks"
NONE = np.empty(0)
COLUMNS = (
    "model", "revision", "scored_site", "scored_pooling", "corpus", "metric", "variant", "site", "pooling", "target",
    "statistic", "estimate", "low", "high", "resampled", "layers", "tasks",
)  # fmt: skip


Draws = Callable[[int], npt.NDArray[np.int64]]
"""Returns `[resamples, n]` indices below n."""


def correlate(
    metrics: "Metrics",
    evaluation: "Evaluation",
    *,
    by: Annotated[Literal["average", "task"], OneOf(("average", "task"))] = "average",
    statistics: Sequence[str] = tuple(STATISTICS),
    first_layer: Annotated[int, Whole(0)] = 1,
    min_share: float = MIN_SHARE,
    bootstrap: Annotated[int, Whole(0)] = 1000,
    seed: Annotated[int, SEED] = 0,
    level: Annotated[float, Number(above=0, below=1, such_as="0.95")] = 0.95,
) -> pd.DataFrame:
    """Return the correlation of each metric by layer with the scores by layer.

    `metrics` is what `open_metrics` takes or returns, or `corpus_averages` of it; layers below
    `first_layer` (0: none) are left out, so are layers where the metric has no value. `statistics`
    are some of spearman, kendall, pearson and dcor (distance correlation). Columns: those of
    `COLUMNS`; a correlation of fewer than 3 layers is NaN.

    `by="average"` gives two targets a metric: `mean score`, the correlation with the mean score
    over tasks, and `mean of tasks`, the mean of the tasks' own correlations; tasks as in
    `Evaluation.summary`. Their intervals resample **tasks**, layers held fixed: tasks are a sample
    of what a layer may be used for, layers are all there are. `by="task"` gives a target a task.
    With one task nothing but **layers** can be resampled, as pairs of metric and score;
    neighbouring layers are alike, so that these intervals are narrower than the truth. The
    intervals are percentiles of `bootstrap` resamples (0: NaN), the same draws for every metric.

    Source: Skean et al. 2025, figures 3 and 8; Efron and Tibshirani 1993 for the percentile
    bootstrap.

    >>> from layerscope.scores import correlate, open_evaluation, open_metrics
    >>> found = correlate(open_metrics("metrics.csv"), open_evaluation("scores.csv"), statistics=["spearman"])
    >>> found.loc[found["target"] == "mean score", ["model", "metric", "estimate"]]
       model           metric  estimate
    0  small  dataset_entropy      -1.0
    2  large  dataset_entropy      -1.0
    """
    checked(correlate, locals(), Options)
    for name in statistics:
        if name not in STATISTICS:
            raise LayerscopeError(f"statistic {name!r} does not exist{choices(name, STATISTICS)}")

    def draws(n: int) -> npt.NDArray[np.int64]:
        # the same for every metric
        return np.random.default_rng(seed).integers(0, n, (bootstrap, n))

    tail, resampled = 50 * (1 - level), "tasks" if by == "average" else "layers"
    rows = [
        {**about, "resampled": resampled, **row, **_interval(resamples, tail)}
        for about, grid, curve in pairs(curves(metrics), evaluation.grids(min_share))
        for row, resamples in _rows(grid, curve[curve.index >= first_layer], by, statistics, draws)
    ]
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
        for about, rows in groups(frame, list(CURVE)):
            if same_model(about, grid.about):
                is_matched = True
                measured_rows = rows[rows["value"].notna()].astype(
                    {"layer": "int64", "value": "float64"}
                )
                curve = measured_rows.set_index("layer")["value"].sort_index()
                yield {**scored, **about, "revision": grid.about["revision"]}, grid, curve
    if not is_matched:
        scores = sorted(
            {f"{grid.about['model']} {grid.about['revision']}".strip() for grid in grids}
        )
        models = frame[["model", "revision"]].drop_duplicates().fillna("")
        measured = sorted(f"{row.model} {row.revision}".strip() for row in models.itertuples())
        raise LayerscopeError(
            f"no model has both metrics ({', '.join(measured[:5])}) and scores ({', '.join(scores[:5])})"
            f"{near(measured[0], scores) if measured else ''}: name models and revisions alike in both"
        )


def same_model(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Return whether two models are the same by name and revision; an empty revision fits any."""
    return a["model"] == b["model"] and (
        a["revision"] == b["revision"] or not a["revision"] or not b["revision"]
    )


def _rows(
    grid: Grid, curve: pd.Series, by: str, statistics: Sequence[str], draws: Draws
) -> Iterator[tuple[dict[str, Any], Floats]]:
    """Yield rows without an interval, each with its resampled values."""
    complete = grid.complete[grid.complete.index.isin(curve.index)]
    if by == "average":
        x, y = curve[complete.index].to_numpy(), complete.to_numpy(dtype=np.float64)
        for name in statistics:
            for row, resamples in _average(x, y, STATISTICS[name], draws):
                yield (
                    {"statistic": name, "layers": y.shape[0], "tasks": y.shape[1], **row},
                    resamples,
                )
        return
    for task in grid.scores:
        scored = grid.scores.loc[complete.index, task].dropna()
        x, y = curve[scored.index].to_numpy(), scored.to_numpy(dtype=np.float64)
        for name in statistics:
            row = {"target": task, "statistic": name, "layers": len(x), "tasks": 1}
            if len(x) < FEWEST:
                yield row, NONE
            else:
                chosen = draws(len(x))
                yield (
                    row | {"estimate": float(STATISTICS[name](x, y))},
                    STATISTICS[name](x[chosen], y[chosen]),
                )


def _average(
    x: Floats, y: Floats, statistic: Statistic, draws: Draws
) -> Iterator[tuple[dict[str, Any], Floats]]:
    """Yield the two averages over tasks of one statistic; `x` is `[layers]`, `y` `[layers, tasks]`."""
    layers, tasks = y.shape
    if layers < FEWEST or not tasks:
        yield from (({"target": target}, NONE) for target in (MEAN_SCORE, MEAN_OF_TASKS))
        return
    chosen = draws(tasks)
    of_mean = statistic(np.broadcast_to(x, (len(chosen), layers)), y.T[chosen].mean(1))
    yield {"target": MEAN_SCORE, "estimate": float(statistic(x, y.mean(1)))}, of_mean
    each = statistic(np.broadcast_to(x, (tasks, layers)), y.T)
    yield {"target": MEAN_OF_TASKS, "estimate": float(_mean(each[None])[0])}, _mean(each[chosen])


def _interval(resamples: Floats, tail: float) -> dict[str, float]:
    """Return the percentile interval of resampled values, NaN among them left out, with `tail` percent at each end."""
    finite = resamples[np.isfinite(resamples)]
    low, high = np.percentile(finite, [tail, 100 - tail]) if len(finite) else (np.nan, np.nan)
    return {"low": float(low), "high": float(high)}


def _mean(rows: Floats) -> Floats:
    """Return the mean of each row over its finite values, NaN where there is none."""
    finite = np.isfinite(rows)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(finite, rows, 0).sum(-1) / finite.sum(-1), dtype=np.float64)
