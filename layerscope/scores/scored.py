"""Scores of one model by layer, as terminal, page and figures show them."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from layerscope.scores.summary import MIN_SHARE, VARIANT, Grid, best_layer
from layerscope.show.numbers import INTERVAL
from layerscope.show.plain import plain, pooling_name

if TYPE_CHECKING:
    from layerscope.scores.evaluation import Evaluation

PLACE = ("site", "pooling")
SHIPPED = "as shipped"
"""What the row of a baseline is called."""
AVERAGE = "average"
FEW = 3
"""Models that are named in one line, at most."""
HEADER = ",".join([*VARIANT, "layer"])
"""What every CSV of scores begins with."""
SHOWN = {
    "first": "first", "mean_over_layers": "mean", "best": "best", "last": "last", "oracle": "oracle",
    "baseline": SHIPPED,
}  # fmt: skip
"""Columns of a summary and their headings."""


@dataclass(frozen=True)
class Score:
    """A score with what is known of its error: NaN for what is not."""

    value: float
    stderr: float = math.nan
    low: float = math.nan
    high: float = math.nan

    @property
    def error(self) -> float:
        """One standard error, of a score with a 95 % interval alone the one that fits it; NaN where none is known."""
        return self.stderr if math.isfinite(self.stderr) else (self.high - self.low) / (2 * INTERVAL)


@dataclass(frozen=True)
class Scored:
    """Scores of one model, revision, site and pooling: what it is called among the others, and its numbers."""

    name: str
    grid: Grid
    known: dict[tuple[int | None, str], Score] = field(repr=False)
    """By layer (None: the model as shipped) and task."""

    @property
    def layers(self) -> list[int]:
        """Every layer there is a row of."""
        return [int(layer) for layer in self.grid.scores.index]

    @property
    def tasks(self) -> list[str]:
        """Every task, those with gaps too."""
        return [str(task) for task in self.grid.scores.columns]

    @property
    def average(self) -> dict[int, float]:
        """Mean score by layer over the tasks all layers have; layers that are left out are not in it."""
        return {} if self.grid.complete.empty else {int(k): float(v) for k, v in self.grid.average.items()}

    @property
    def best(self) -> int | None:
        """The layer of the highest average: see `best_layer`."""
        return best_layer(self.grid.average)

    @property
    def shipped(self) -> float:
        """Mean score of the model as shipped over the same tasks, NaN where one is missing."""
        return float(self.grid.baseline.reindex(self.grid.complete.columns).mean(skipna=False))

    def error(self, layer: int) -> float:
        """Return the standard error of a layer's average, its tasks drawn apart; NaN where one of theirs is unknown."""
        errors = [self.at(layer, str(task)).error for task in self.grid.complete]
        return math.hypot(*errors) / len(errors)

    def at(self, layer: int | None, task: str) -> Score:
        """Return the score of a layer (None: of the model as shipped) on a task."""
        return self.known.get((layer, task), Score(math.nan))

    def best_on(self, task: str) -> int | None:
        """Return the layer of the highest score on a task: see `best_layer`."""
        return best_layer(self.grid.scores[task])

    def reference(self, task: str) -> float:
        """Return what a task's scores are compared with: the model as shipped, else the deepest layer with a score."""
        shipped = self.at(None, task).value
        known = self.grid.scores[task].dropna()
        return float(known.iloc[-1]) if math.isnan(shipped) and len(known) else shipped

    @property
    def compared_with(self) -> str:
        """Name what `reference` takes."""
        shipped = [math.isfinite(self.at(None, task).value) for task in self.tasks]
        named, scores = f"the model {SHIPPED}", self.grid.scores
        is_last = self.grid.depth in scores.index and bool(scores.loc[self.grid.depth].notna().all())
        deepest = "the last layer" if is_last else "the deepest layer with a score"
        return named if all(shipped) else f"{named}, else {deepest}" if any(shipped) else deepest


def scored(evaluation: Evaluation, min_share: float = MIN_SHARE) -> list[Scored]:
    """Return the scores of each model, revision, site and pooling of an evaluation."""
    return [
        Scored(series_name(grid.about, evaluation.scores), grid, _known(grid, evaluation.scores))
        for grid in evaluation.grids(min_share)
    ]


def _known(grid: Grid, scores: pd.DataFrame) -> dict[tuple[int | None, str], Score]:
    own = (scores["model"] == grid.about["model"]) & (scores["revision"] == grid.about["revision"])
    place = pd.Series(True, index=scores.index)
    for key in PLACE:
        value = grid.about[key]
        place &= scores[key].isna() if value is None else scores[key] == value
    rows = scores[own & ((scores["kind"] == "baseline") | place)]
    return {
        (None if row.kind == "baseline" else int(row.layer), str(row.task)): Score(
            float(row.score), float(row.stderr), float(row.low), float(row.high)
        )
        for row in rows.itertuples()
    }


def summary(evaluation: Evaluation, min_share: float = MIN_SHARE) -> list[dict[str, Any]]:
    """Return the rows of an evaluation's summary, none where no model has layers and tasks enough for an average."""
    if all(grid.complete.empty for grid in evaluation.grids(min_share)):
        return []
    found: list[dict[str, Any]] = evaluation.summary(min_share).to_dict(orient="records")
    return found


def decimals(evaluation: Evaluation) -> int:
    """Return how many decimals tell layers apart in the scores' own units: shares have 4, percents 2."""
    return 4 if evaluation.scores["score"].abs().max() <= 1 else 2


@dataclass(frozen=True)
class Unit:
    """How scores are shown: with so many decimals in their own unit, or shares in percent."""

    decimals: int
    percent: bool = False

    def number(self, value: float, sign: bool = False) -> str:
        """Return a score as it stands in a table."""
        return told(100 * value if self.percent else value, self.decimals, sign)

    def told(self, value: float, error: float = math.nan) -> str:
        """Return a score, and its standard error where it is known, as a sentence says it."""
        shown = self.number(value) + (f" ±{self.number(error)}" if math.isfinite(error) else "")
        return f"{shown} %" if self.percent else shown

    def difference(self, value: float) -> str:
        """Return a difference of two scores as a sentence says it: of two shares in points."""
        return self.number(value, sign=True) + (" points" if self.percent else "")


def percents(evaluation: Evaluation) -> Unit:
    """Return the unit of an evaluation's tables: shares in percent, other scores as they are."""
    return Unit(2, percent=decimals(evaluation) == 4)


def told(value: float, decimals: int, sign: bool = False) -> str:
    """Return a number with so many decimals and a true minus, `–` where it is not finite; `sign` shows a plus too."""
    if not math.isfinite(value):
        return "–"
    return f"{value:{'+' if sign else ''}.{decimals}f}".replace("-", "−")


def named_layers(layers: Sequence[int]) -> str:
    """Return which layers these are: `layers 0 to 3`, with gaps `layers 0 to 4, 6`, or `layer 6`."""
    spans: list[list[int]] = []
    for layer in layers:
        if spans and layer == spans[-1][-1] + 1:
            spans[-1].append(layer)
        else:
            spans.append([layer])
    parts = [f"{span[0]} to {span[-1]}" if len(span) > 2 else ", ".join(map(str, span)) for span in spans]
    return f"layer{'s' * (len(layers) > 1)} {', '.join(parts)}" if layers else "no layer"


def shared_place(scores: pd.DataFrame) -> str:
    """Return the site and pooling that all layers share, for a title; empty where there is none."""
    layers = scores[scores["kind"] == "layer"]
    parts = [_part(key, layers[key].iloc[0]) for key in PLACE if layers[key].nunique(dropna=False) == 1]
    return " · ".join(filter(None, parts))


def series_name(about: dict[str, Any], scores: pd.DataFrame) -> str:
    """Return a model's name, with revision, site and pooling where the evaluation has several."""
    layers = scores[scores["kind"] == "layer"]
    several = layers.loc[layers["model"] == about["model"], "revision"].nunique() > 1
    revision = str(about["revision"])
    short = revision[:7] if re.fullmatch("[0-9a-f]{40}", revision) else revision
    model = f"{about['model']}@{short}" if several else str(about["model"])
    return " ".join(filter(None, (plain(model), place_name(about, scores))))


def place_name(about: dict[str, Any], scores: pd.DataFrame) -> str:
    """Return site and pooling where the evaluation has several; empty where all layers share them."""
    layers = scores[scores["kind"] == "layer"]
    parts = [_part(key, about[key]) for key in PLACE if layers[key].nunique(dropna=False) > 1]
    return plain(" ".join(filter(None, parts)))


def one_model(scores: pd.DataFrame) -> bool:
    """Return whether all layers are of one model and revision."""
    return len(scores.loc[scores["kind"] == "layer", ["model", "revision"]].drop_duplicates()) == 1


def _part(key: str, value: Any) -> str:
    if pd.isna(value):
        return ""
    return pooling_name(value) if key == "pooling" else str(value)


def wide_csv(evaluation: Evaluation, min_share: float = MIN_SHARE) -> str:
    """Return layer × task as a CSV of all models: model, revision, site, pooling, layer, a column a task, average.

    The model as shipped has one row, `as shipped` in the place of a layer, after the last of its layers. An average
    runs over the tasks that every layer has; that of the model as shipped is empty where its sites and poolings differ
    in these tasks.
    """
    tasks = list(evaluation.scores.loc[evaluation.scores["kind"] == "layer", "task"].unique())
    models: dict[tuple[Any, ...], list[Scored]] = {}
    for entry in scored(evaluation, min_share):
        models.setdefault((entry.grid.about["model"], entry.grid.about["revision"]), []).append(entry)
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow([*VARIANT, "layer", *tasks, AVERAGE])
    for model, entries in models.items():
        for entry in entries:
            place, average = [entry.grid.about[key] for key in PLACE], entry.average
            for layer in entry.layers:
                writer.writerow(_cells(*model, *place, layer, *_line(entry, layer, tasks), average.get(layer)))
        first = entries[0]
        if len(first.grid.baseline):
            averaged = {frozenset(entry.grid.complete.columns) for entry in entries}
            mean = first.shipped if len(averaged) == 1 else None
            writer.writerow(_cells(*model, None, None, SHIPPED, *_line(first, None, tasks), mean))
    return file.getvalue()


def _line(entry: Scored, layer: int | None, tasks: Sequence[str]) -> list[float]:
    return [entry.at(layer, task).value for task in tasks]


def _cells(*values: Any) -> list[Any]:
    return ["" if value is None or value != value else value for value in values]
