"""How a run's metrics correlate with the scores of its model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from layerscope.core.errors import LayerscopeError
from layerscope.runs.registry import about, rank
from layerscope.runs.run import Run
from layerscope.scores.correlation import MEAN_OF_TASKS, MEAN_SCORE, correlate, pairs, same_model
from layerscope.scores.grids import Grid, where
from layerscope.scores.metric_values import curves
from layerscope.scores.naming import percents
from layerscope.scores.statistics import FEWEST
from layerscope.show.plain import plain, pooling_name
from layerscope.show.plots import Series

if TYPE_CHECKING:
    from layerscope.scores.evaluation import Evaluation

OVER = "average score on tasks"
KEY = ("metric", "variant", "site", "pooling")


@dataclass(frozen=True)
class Related:
    """One metric of a run beside the scores of one model: its values by layer, and `correlate`'s row by statistic.

    `by_task` is the first statistic averaged over the tasks' own, NaN where there is one task.
    """

    title: str
    values: dict[int, float]
    found: dict[str, Any]
    by_task: float
    layers: int
    tasks: int


def is_of(run: Run, grid: Grid) -> bool:
    """Return whether scores are of a run's model."""
    model = run.info["model"]
    return same_model({"model": model["name"], "revision": model.get("revision")}, grid.about)


def averages(evaluation: "Evaluation", runs: Sequence[Run]) -> dict[int, Series]:
    """Return for each run whose model has scores their average by layer, to lie over its metrics."""
    unit, series = percents(evaluation.scores), {}
    grids = [grid for grid in evaluation.grids() if len(grid.average)]
    for i, run in enumerate(runs):
        grid = next((grid for grid in grids if is_of(run, grid)), None)
        if grid is None:
            continue
        layers, values = grid.average.index, grid.average
        series[i] = Series(
            OVER,
            tuple(map(float, layers)),
            tuple(unit.scale * value for value in values),
            tuple(f"{OVER}, layer {layer}: {unit.text(value)}" for layer, value in values.items()),
            mark="guide",
            tone="muted" if len(runs) == 1 else "own",
            right=True,
        )
    return series


def pairings(
    runs: Sequence[Run], evaluation: "Evaluation", grids: Sequence[Grid]
) -> list[list[list[Related]]]:
    """Return for each of the scores, and each run of its model, the metrics with three layers in common."""
    related: list[list[list[Related]]] = [[] for _ in grids]
    for run in runs:
        measured = curves(run)
        try:
            series = list(pairs(measured, grids))
        except LayerscopeError:  # no scores of this model
            continue
        rows = correlate(measured, evaluation)
        for metrics_of_grid, grid in zip(related, grids, strict=True):
            of_grid = [(key, values) for key, other, values in series if other is grid]
            if of_grid and grid.complete.shape[1] == 1:  # layers are resampled, not the only task
                by_task = correlate(measured, evaluation, by="task")
                rows_of_grid = by_task[by_task["target"] == grid.complete.columns[0]]
                rows_of_grid = rows_of_grid[_is_about(rows_of_grid, grid)].assign(target=MEAN_SCORE)
            else:
                rows_of_grid = rows[_is_about(rows, grid)]
            if metrics := _related(of_grid, rows_of_grid):
                metrics_of_grid.append(metrics)
    return related


def _is_about(rows: pd.DataFrame, grid: Grid) -> pd.Series:
    """Return which rows of `correlate` are of the scores of a model, site and pooling."""
    about = grid.about
    scored = {f"scored_{key}": about[key] for key in ("site", "pooling")}
    return where(rows, {"model": about["model"], "revision": about["revision"], **scored})


def _related(series: list[tuple[dict[str, Any], pd.Series]], table: pd.DataFrame) -> list[Related]:
    related = []
    for key, values in sorted(series, key=lambda pair: rank(pair[0]["metric"])):
        rows = table[where(table, {name: key[name] for name in KEY})]
        if rows.empty or rows["layers"].max() < FEWEST or math.isnan(rows["estimate"].iloc[0]):
            continue  # too few layers in common, or scores or values that never change
        of_mean = rows[rows["target"] == MEAN_SCORE]
        of_tasks = rows.loc[rows["target"] == MEAN_OF_TASKS, "estimate"]
        related.append(
            Related(
                title=_title(key, [other for other, _ in series]),
                values={int(layer): float(value) for layer, value in values.items() if layer},
                found={row.statistic: row for row in of_mean.itertuples()},
                by_task=float(of_tasks.iloc[0]) if len(of_tasks) else math.nan,
                layers=int(rows["layers"].max()),
                tasks=int(rows["tasks"].max()),
            )
        )
    return related


def _title(key: dict[str, Any], others: list[dict[str, Any]]) -> str:
    """Return a metric's title, with variant and pooling where it has several."""
    same = [other for other in others if other["metric"] == key["metric"]]
    details = []
    if len({other["variant"] for other in same}) > 1 and key["variant"]:
        details.append(str(key["variant"]).replace(",", ", "))
    if len({other["pooling"] for other in same}) > 1:
        details.append(pooling_name(key["pooling"]))
    return plain(about(key["metric"]).title + (f" ({', '.join(details)})" if details else ""))
