"""How a run's metrics go with the scores of its model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from layerscope.core.errors import LayerscopeError
from layerscope.runs.registry import about, rank
from layerscope.runs.run import Run
from layerscope.scores.correlation import MEAN_OF_TASKS, MEAN_SCORE, pairs, same_model
from layerscope.scores.metric_values import curves
from layerscope.scores.scored import Scored, percents, scored
from layerscope.scores.statistics import FEWEST
from layerscope.scores.summary import VARIANT
from layerscope.show.plain import plain, pooling_name
from layerscope.show.plots import Series

if TYPE_CHECKING:
    from layerscope.scores.evaluation import Evaluation

OVER = "average score on tasks"
FIRST = 1
"""Layer 0, the embedding output, is no part of a correlation."""
NAMES = {
    "spearman": "Spearman's ρ", "kendall": "Kendall's τ", "pearson": "Pearson's r", "dcor": "distance correlation",
}  # fmt: skip
KEY = ("metric", "variant", "site", "pooling")


@dataclass(frozen=True)
class Correlation:
    """One coefficient, and the 95 % interval of its resamples."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class Related:
    """One metric of a run beside the scores of one model: its values by layer, and every statistic by name."""

    metric: str
    title: str
    values: dict[int, float]
    found: dict[str, Correlation]
    by_task: float
    """The first statistic averaged over the tasks' own, NaN where there is one task."""
    layers: int
    tasks: int


@dataclass(frozen=True)
class Pairing:
    """A run and the scores of its model, by their places among the others."""

    run: int
    scored: int
    metrics: list[Related] = field(repr=False)


def is_of(run: Run, entry: Scored) -> bool:
    """Return whether scores are of a run's model."""
    model = run.info["model"]
    return same_model({"model": model["name"], "revision": model.get("revision")}, entry.grid.about)


def averages(evaluation: Evaluation, runs: Sequence[Run]) -> dict[int, Series]:
    """Return for each run whose model has scores their average by layer, to lie over its metrics."""
    unit, entries, found = percents(evaluation), scored(evaluation), {}
    for i, run in enumerate(runs):
        average = next((entry.average for entry in entries if entry.average and is_of(run, entry)), None)
        if average is not None:
            found[i] = Series(
                OVER,
                tuple(map(float, average)),
                tuple(unit.scale * value for value in average.values()),
                tuple(f"{OVER}, layer {layer}: {unit.text(value)}" for layer, value in average.items()),
                mark="guide",
                tone="muted" if len(runs) == 1 else "own",
                right=True,
            )
    return found


def pairings(runs: Sequence[Run], evaluation: Evaluation, entries: Sequence[Scored]) -> list[Pairing]:
    """Return every run with each scores of its model, where any metric has three layers in common with them."""
    found = []
    for i, run in enumerate(runs):
        measured = curves(run)
        try:
            matched = list(pairs(measured, [entry.grid for entry in entries]))
        except LayerscopeError:  # no scores of this model
            continue
        table = _correlated(measured, evaluation)
        for j, entry in enumerate(entries):
            series = [(key, values) for key, grid, values in matched if grid is entry.grid]
            if metrics := _related(series, table[_rows_of(table, entry)]):
                found.append(Pairing(i, j, metrics))
    return found


def _correlated(measured: pd.DataFrame, evaluation: Evaluation) -> pd.DataFrame:
    """Return the correlations with mean scores; where a model has one task, with that task, its layers resampled."""
    options: dict[str, Any] = {"first_layer": FIRST}
    table = evaluation.correlate(measured, **options)
    if (table["tasks"] == 1).any():
        single = evaluation.correlate(measured, by="task", **options)
        keys = ["model", "revision", "scored_site", "scored_pooling"]
        alone = table.loc[table["tasks"] == 1, keys].drop_duplicates()
        only = single.merge(alone, on=keys).groupby([*keys, *KEY, "statistic"], sort=False, dropna=False).head(1)
        table = pd.concat([table[table["tasks"] != 1], only.assign(target=MEAN_SCORE)], ignore_index=True)
    return table


def _rows_of(table: pd.DataFrame, entry: Scored) -> Any:
    wanted = dict(zip(("model", "revision", "scored_site", "scored_pooling"), VARIANT, strict=True))
    chosen = pd.Series(True, index=table.index)
    for column, key in wanted.items():
        value = entry.grid.about[key]
        chosen &= table[column].isna() if value is None else table[column] == value
    return chosen


def _related(series: list[tuple[dict[str, Any], Any]], table: pd.DataFrame) -> list[Related]:
    known = {
        _key(row): rows for _, rows in table.groupby(list(KEY), sort=False, dropna=False) for row in [rows.iloc[0]]
    }
    found = []
    for key, values in sorted(series, key=lambda pair: rank(pair[0]["metric"])):
        rows = known.get(_key(key))
        if rows is None or rows["layers"].max() < FEWEST or math.isnan(rows["estimate"].iloc[0]):
            continue  # too few layers in common, or scores or values that never change
        of_mean, of_tasks = (rows[rows["target"] == target] for target in (MEAN_SCORE, MEAN_OF_TASKS))
        found.append(
            Related(
                metric=key["metric"],
                title=_title(key, [other for other, _ in series]),
                values={int(layer): float(value) for layer, value in values.items() if layer >= FIRST},
                found={row.statistic: Correlation(row.estimate, row.low, row.high) for row in of_mean.itertuples()},
                by_task=float(of_tasks["estimate"].iloc[0]) if len(of_tasks) else math.nan,
                layers=int(rows["layers"].max()),
                tasks=int(rows["tasks"].max()),
            )
        )
    return found


def _key(row: Any) -> tuple[str | None, ...]:
    return tuple(None if pd.isna(row[key]) else str(row[key]) for key in KEY)


def _title(key: dict[str, Any], others: list[dict[str, Any]]) -> str:
    """Return a metric's title, with variant and pooling where it has several."""
    same = [other for other in others if other["metric"] == key["metric"]]
    details = []
    if len({other["variant"] for other in same}) > 1 and key["variant"]:
        details.append(str(key["variant"]).replace(",", ", "))
    if len({other["pooling"] for other in same}) > 1:
        details.append(pooling_name(key["pooling"]))
    return plain(about(key["metric"]).title + (f" ({', '.join(details)})" if details else ""))
