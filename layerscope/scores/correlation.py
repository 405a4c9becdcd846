"""How metrics by layer go with scores by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.core.errors import LayerscopeError, choices, near
from layerscope.scores.metric_values import CURVE, curves
from layerscope.scores.statistics import FEWEST, STATISTICS, Floats
from layerscope.scores.summary import MIN_SHARE, Grid, groups

if TYPE_CHECKING:
    from layerscope.scores.evaluation import Evaluation
    from layerscope.scores.metric_values import Metrics

MEAN_SCORE = "mean score"
MEAN_OF_TASKS = "mean of tasks"
By = Literal["average", "task"]
COLUMNS = (
    "model", "revision", "scored_site", "scored_pooling", "corpus", "metric", "variant", "site", "pooling", "target",
    "statistic", "estimate", "low", "high", "resampled", "layers", "tasks",
)  # fmt: skip


@dataclass(frozen=True)
class Bootstrap:
    """`resamples` draws with replacement from a generator seeded with `seed`; the interval holds `level` of them."""

    resamples: int = 1000
    seed: int = 0
    level: float = 0.95

    def draws(self, n: int) -> npt.NDArray[np.int64]:
        """Return `[resamples, n]` indices below n; the same for every metric, so that metrics can be compared."""
        return np.random.default_rng(self.seed).integers(0, n, (self.resamples, n))

    def interval(self, values: Floats) -> tuple[float, float]:
        """Return the percentile interval of resampled values, NaN among them left out."""
        known = values[np.isfinite(values)]
        if not len(known):
            return np.nan, np.nan
        tail = 50 * (1 - self.level)
        low, high = np.percentile(known, [tail, 100 - tail])
        return float(low), float(high)


def correlate(
    metrics: Metrics,
    evaluation: Evaluation,
    *,
    by: By = "average",
    statistics: Sequence[str] = tuple(STATISTICS),
    first_layer: int = 1,
    min_share: float = MIN_SHARE,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> pd.DataFrame:
    """Return the correlation of each metric by layer with the scores by layer.

    `metrics` is what `open_metrics` takes or returns, or `corpus_averages` of it; layers below `first_layer` (0: none)
    are left out, so are layers where the metric has no value. `statistics` are some of spearman, kendall, pearson and
    dcor (distance correlation). Columns: those of `COLUMNS`; a correlation of fewer than 3 layers is NaN.

    `by="average"` gives two targets a metric: `mean score`, the correlation with the mean score over tasks, and
    `mean of tasks`, the mean of the tasks' own correlations; tasks as in `Evaluation.summary`. Their intervals resample
    **tasks**, layers held fixed: tasks are a sample of what a layer may be used for, layers are all there are.
    `by="task"` gives a target a task. With one task nothing but **layers** can be resampled, as pairs of metric and
    score; neighbouring layers are alike, so that these intervals are narrower than the truth. The intervals are
    percentiles of `bootstrap` resamples (0: NaN), the same draws for every metric.

    Source: Skean et al. 2025, figures 3 and 8; Efron and Tibshirani 1993 for the percentile bootstrap.

    >>> from layerscope.scores import correlate, open_evaluation, open_metrics
    >>> found = correlate(open_metrics("metrics.csv"), open_evaluation("scores.csv"), statistics=["spearman"])
    >>> found.loc[found["target"] == "mean score", ["model", "metric", "estimate"]]
       model           metric  estimate
    0  small  dataset_entropy      -1.0
    2  large  dataset_entropy      -1.0
    """
    _check(statistics, by, level)
    for name, value in (("first_layer", first_layer), ("bootstrap", bootstrap), ("seed", seed)):
        whole(name, value)
    drawn = Bootstrap(bootstrap, seed, level)
    frame = curves(metrics)
    rows = [
        {**about, **row}
        for about, grid, curve in pairs(frame, evaluation.grids(min_share))
        for row in _rows(grid, curve[curve.index >= first_layer], by, statistics, drawn)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def pairs(frame: pd.DataFrame, grids: list[Grid]) -> Iterator[tuple[dict[str, Any], Grid, pd.Series]]:
    """Yield each model's scores with each of its metrics as a series by layer; no common model is an error.

    Models are the same by name and revision; an empty revision fits any.
    """
    found = False
    for grid in grids:
        scored = {f"scored_{key}": grid.about[key] for key in ("site", "pooling")}
        for about, rows in groups(frame, list(CURVE)):
            if _same_model(about, grid.about):
                found = True
                yield {**scored, **about, "revision": grid.about["revision"]}, grid, _series(rows)
    if not found:
        raise LayerscopeError(_no_common(frame, grids))


def _same_model(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a["model"] == b["model"] and (a["revision"] == b["revision"] or not a["revision"] or not b["revision"])


def _series(rows: pd.DataFrame) -> pd.Series:
    known = rows[rows["value"].notna()]
    index = pd.Index(known["layer"].astype("int64"), name="layer")
    return pd.Series(known["value"].to_numpy(dtype=np.float64), index=index).sort_index()


def _rows(
    grid: Grid, curve: pd.Series, by: By, statistics: Sequence[str], drawn: Bootstrap
) -> Iterator[dict[str, Any]]:
    common = curve.index.intersection(grid.complete.index)
    if by == "average":
        scores = grid.complete.loc[common]
        x, y = curve[common].to_numpy(), scores.to_numpy(dtype=np.float64)
        for name in statistics:
            yield from _average(x, y, name, drawn)
        return
    for task in grid.scores.columns:
        scored = grid.scores.loc[grid.complete.index, task].dropna()
        layers = common.intersection(scored.index)
        x, y = curve[layers].to_numpy(), scored[layers].to_numpy(dtype=np.float64)
        for name in statistics:
            yield {"target": task, **_single(x, y, name, drawn)}


def _average(x: Floats, y: Floats, name: str, drawn: Bootstrap) -> Iterator[dict[str, Any]]:
    """Yield the two averages over tasks of one statistic; `x` is `[layers]`, `y` `[layers, tasks]`."""
    layers, tasks = y.shape
    shared = {"statistic": name, "resampled": "tasks", "layers": layers, "tasks": tasks}
    if layers < FEWEST or not tasks:
        yield from ({"target": target, **shared} for target in (MEAN_SCORE, MEAN_OF_TASKS))
        return
    statistic = STATISTICS[name]
    chosen = drawn.draws(tasks)
    of_mean = float(statistic(x, y.mean(1)))
    low, high = drawn.interval(statistic(np.broadcast_to(x, (len(chosen), layers)), y.T[chosen].mean(1)))
    yield {"target": MEAN_SCORE, "estimate": of_mean, "low": low, "high": high, **shared}
    each = statistic(np.broadcast_to(x, (tasks, layers)), y.T)
    low, high = drawn.interval(_mean(each[chosen]))
    yield {"target": MEAN_OF_TASKS, "estimate": float(_mean(each[None])[0]), "low": low, "high": high, **shared}


def _single(x: Floats, y: Floats, name: str, drawn: Bootstrap) -> dict[str, Any]:
    shared = {"statistic": name, "resampled": "layers", "layers": len(x), "tasks": 1}
    if len(x) < FEWEST:
        return shared
    chosen = drawn.draws(len(x))
    low, high = drawn.interval(STATISTICS[name](x[chosen], y[chosen]))
    return {"estimate": float(STATISTICS[name](x, y)), "low": low, "high": high, **shared}


def _mean(rows: Floats) -> Floats:
    """Return the mean of each row over its finite values, NaN where there is none."""
    known = np.isfinite(rows)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, rows, 0).sum(-1) / known.sum(-1), dtype=np.float64)


def whole(name: str, value: Any) -> None:
    """Refuse an option that is not a whole number of 0 or more."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise LayerscopeError(f"{name} {value!r} is not a whole number of 0 or more: give one")


def _check(statistics: Sequence[str], by: str, level: float) -> None:
    for name in statistics:
        if name not in STATISTICS:
            raise LayerscopeError(f"statistic {name!r} does not exist{choices(name, STATISTICS)}")
    if by not in ("average", "task"):
        raise LayerscopeError(f"by={by!r} is unknown{choices(by, ('average', 'task'))}")
    if not 0 < level < 1:
        raise LayerscopeError(f"level {level!r} is not a share: give one between 0 and 1, as 0.95")


def _no_common(frame: pd.DataFrame, grids: list[Grid]) -> str:
    scored = sorted({f"{grid.about['model']} {grid.about['revision']}".strip() for grid in grids})
    models = frame[["model", "revision"]].drop_duplicates().fillna("")
    measured = sorted(f"{row.model} {row.revision}".strip() for row in models.itertuples())
    hint = near(measured[0], scored) if measured else ""
    return (
        f"no model has both metrics ({', '.join(measured[:5])}) and scores ({', '.join(scored[:5])}){hint}: "
        "name models and revisions alike in both"
    )
