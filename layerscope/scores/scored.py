"""Scores of one model by layer, as terminal, page and figures show them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from layerscope.scores.summary import MIN_SHARE, VARIANT, Grid, best_layer
from layerscope.show.numbers import INTERVAL
from layerscope.show.plain import plain, pooling_name

if TYPE_CHECKING:
    from layerscope.scores.evaluation import Evaluation

SITE = ("site", "pooling")
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

    @cached_property
    def known(self) -> dict[tuple[int | None, str], Score]:
        """Every score by layer (None: the model as shipped) and task."""
        columns = ("score", "stderr", "low", "high")
        return {
            (None if row["kind"] == "baseline" else int(row["layer"]), str(row["task"])): Score(*map(row.get, columns))
            for row in self.grid.rows.to_dict(orient="records")
        }

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
        return self.grid.shipped

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
    return [Scored(series_name(grid.about, evaluation.scores), grid) for grid in evaluation.grids(min_share)]


@dataclass(frozen=True)
class Unit:
    """How scores are shown: shares in percent, others in their own unit."""

    percent: bool

    @property
    def scale(self) -> float:
        """The factor from a score to what is shown."""
        return 100.0 if self.percent else 1.0

    @property
    def title(self) -> str:
        """What a title says of it."""
        return ", in %" if self.percent else ""

    def number(self, value: float, sign: bool = False) -> str:
        """Return a score as it stands in a table."""
        return decimal(self.scale * value, 2, sign)

    def text(self, value: float, error: float = math.nan) -> str:
        """Return a score, and its standard error where it is known, as a sentence has it."""
        shown = self.number(value) + (f" ±{self.number(error)}" if math.isfinite(error) else "")
        return f"{shown} %" if self.percent else shown

    def difference(self, value: float) -> str:
        """Return a difference of two scores as a sentence has it: of two shares in points."""
        return self.number(value, sign=True) + (" points" if self.percent else "")


def percents(evaluation: Evaluation) -> Unit:
    """Return the unit of an evaluation's scores, which are shares where none is above 1."""
    return Unit(bool(evaluation.scores["score"].abs().max() <= 1))


def decimal(value: float, decimals: int, sign: bool = False) -> str:
    """Return a number with a true minus, `–` where it is not finite; `sign` shows a plus too."""
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


def shared_site(scores: pd.DataFrame) -> str:
    """Return the site and pooling that all layers share, for a title; empty where there is none."""
    return " · ".join(_sites(scores[scores["kind"] == "layer"].iloc[0], scores, several=False))


def site_name(about: Any, scores: pd.DataFrame) -> str:
    """Return site and pooling where the evaluation has several; empty where all layers share them."""
    return plain(" ".join(_sites(about, scores, several=True)))


def _sites(about: Any, scores: pd.DataFrame, several: bool) -> list[str]:
    """Return the names of site and pooling, each where layers have several, or where they have one."""
    layers = scores[scores["kind"] == "layer"]
    keys = [key for key in SITE if (layers[key].nunique(dropna=False) > 1) == several and not pd.isna(about[key])]
    return [pooling_name(about[key]) if key == "pooling" else str(about[key]) for key in keys]


def series_name(about: dict[str, Any], scores: pd.DataFrame) -> str:
    """Return a model's name, with revision, site and pooling where the evaluation has several."""
    model, revision = str(about["model"]), str(about["revision"])
    if scores.loc[(scores["kind"] == "layer") & (scores["model"] == model), "revision"].nunique() > 1:
        model += f"@{revision[:7] if re.fullmatch('[0-9a-f]{40}', revision) else revision}"
    return f"{plain(model)} {site_name(about, scores)}".strip()


def one_model(scores: pd.DataFrame) -> bool:
    """Return whether all layers are of one model and revision."""
    return len(scores.loc[scores["kind"] == "layer", ["model", "revision"]].drop_duplicates()) == 1


def wide_csv(evaluation: Evaluation, min_share: float = MIN_SHARE) -> str:
    """Return layer × task as a CSV of all models: model, revision, site, pooling, layer, a column a task, average.

    The model as shipped has one row, `as shipped` instead of a layer, after the last of its layers. An average runs
    over the tasks that every layer has; that of the model as shipped is empty where its sites and poolings differ in
    these tasks.
    """
    tasks = list(evaluation.scores.loc[evaluation.scores["kind"] == "layer", "task"].unique())
    models: dict[tuple[Any, ...], list[Grid]] = {}
    for grid in evaluation.grids(min_share):
        models.setdefault((grid.about["model"], grid.about["revision"]), []).append(grid)
    rows: list[list[Any]] = []
    for model, grids in models.items():
        for grid in grids:
            scores, average = grid.scores.reindex(columns=tasks), grid.average
            rows += [[*grid.about.values(), layer, *scores.loc[layer], average.get(layer)] for layer in scores.index]
        if len(shipped := grids[0].baseline):
            alike = len({frozenset(grid.complete.columns) for grid in grids}) == 1
            mean = grids[0].shipped if alike else None
            rows.append([*model, None, None, SHIPPED, *shipped.reindex(tasks), mean])
    frame = pd.DataFrame(rows, columns=[*VARIANT, "layer", *tasks, AVERAGE])
    return str(frame.to_csv(index=False, lineterminator="\r\n"))
