"""How a run's metrics correlate with the scores of its model."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
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
    unit, known, found = percents(evaluation.scores), evaluation.grids(), {}
    for i, run in enumerate(runs):
        average = next(
            (grid.average for grid in known if len(grid.average) and is_of(run, grid)), None
        )
        if average is not None:
            found[i] = Series(
                OVER,
                tuple(map(float, average.index)),
                tuple(unit.scale * value for value in average),
                tuple(
                    f"{OVER}, layer {layer}: {unit.text(value)}" for layer, value in average.items()
                ),
                mark="guide",
                tone="muted" if len(runs) == 1 else "own",
                right=True,
            )
    return found


def pairings(
    runs: Sequence[Run], evaluation: "Evaluation", known: Sequence[Grid]
) -> list[list[list[Related]]]:
    """Return for each of the known scores, and each run of its model, the metrics with three layers in common."""
    found: list[list[list[Related]]] = [[] for _ in known]
    for run in runs:
        measured = curves(run)
        try:
            matched = list(pairs(measured, known))
        except LayerscopeError:  # no scores of this model
            continue
        table = correlate(measured, evaluation)
        single = cache(lambda measured=measured: correlate(measured, evaluation, by="task"))
        for own, grid in zip(found, known, strict=True):
            series = [(key, values) for key, other, values in matched if other is grid]
            if metrics := _related(series, _rows_of(grid, table, single)):
                own.append(metrics)
    return found


def _rows_of(grid: Grid, table: pd.DataFrame, single: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """Return a model's correlations with mean scores; of one task those with that task, its layers resampled."""
    about = grid.about | {f"scored_{key}": grid.about[key] for key in ("site", "pooling")}
    columns = ("model", "revision", "scored_site", "scored_pooling")
    own = {column: about[column] for column in columns}
    if grid.complete.shape[1] != 1:
        return table[where(table, own)]
    return single()[where(single(), own | {"target": grid.complete.columns[0]})].assign(
        target=MEAN_SCORE
    )


def _related(series: list[tuple[dict[str, Any], pd.Series]], table: pd.DataFrame) -> list[Related]:
    found = []
    for key, values in sorted(series, key=lambda pair: rank(pair[0]["metric"])):
        rows = table[where(table, {name: key[name] for name in KEY})]
        if rows.empty or rows["layers"].max() < FEWEST or math.isnan(rows["estimate"].iloc[0]):
            continue  # too few layers in common, or scores or values that never change
        of_mean, of_tasks = (
            rows[rows["target"] == target] for target in (MEAN_SCORE, MEAN_OF_TASKS)
        )
        found.append(
            Related(
                title=_title(key, [other for other, _ in series]),
                values={int(layer): float(value) for layer, value in values.items() if layer},
                found={row.statistic: row for row in of_mean.itertuples()},
                by_task=float(of_tasks["estimate"].iloc[0]) if len(of_tasks) else math.nan,
                layers=int(rows["layers"].max()),
                tasks=int(rows["tasks"].max()),
            )
        )
    return found


def _title(key: dict[str, Any], others: list[dict[str, Any]]) -> str:
    """Return a metric's title, with variant and pooling where it has several."""
    same = [other for other in others if other["metric"] == key["metric"]]
    details = []
    if len({other["variant"] for other in same}) > 1 and key["variant"]:
        details.append(str(key["variant"]).replace(",", ", "))
    if len({other["pooling"] for other in same}) > 1:
        details.append(pooling_name(key["pooling"]))
    return plain(about(key["metric"]).title + (f" ({', '.join(details)})" if details else ""))
