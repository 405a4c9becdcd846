"""Scores of one model by layer and task, and what they come to: first, mean, best, last layer, per-task oracle.

A grid is layer × task. Averages by layer run over the tasks that every layer has, so that layers
are compared on the same tasks; a layer with too few of them is left out before. With 4 tasks, where
a layer must have 4 · 25 / 32 of them, which is all:

            a    b    c    d
    0      .5   .5   .5    –     left out: 3 of 4 tasks
    1      .6   .6   .6   .6     average .6
    2      .7   .5   .6   .8     average .65: the best layer; of task b, layer 1 is
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from layerscope.core import LayerscopeError
from layerscope.core.margin import INTERVAL
from layerscope.scores.naming import VARIANT, Unit
from layerscope.show.plain import plain, pooling_name

MIN_SHARE = 25 / 32
"""A layer with scores on a smaller share of the tasks is left out of every average: 25 of 32 in Layer by Layer."""
SUMMARY = (
    *VARIANT, "first", "mean_over_layers", "best", "best_layer", "last", "oracle", "baseline", "first_layer",
    "last_layer", "layers", "tasks", "missing", "left_out",
)  # fmt: skip
Key = int | str | None
"""A layer, a mix by its name, or None: as shipped."""
Scores = TypeVar("Scores", pd.Series, pd.DataFrame)


class Score(NamedTuple):
    """A score and its standard error, NaN where that is not known."""

    value: float
    error: float


@dataclass(frozen=True, eq=False)
class Grid:
    """Scores of one model, revision, site and pooling.

    `rows` are those of the long frame, with those of the model as shipped; `scores` is layer ×
    task, every layer and task there is; `complete` the layers with enough tasks × the tasks present
    at each of these; `left_out` the other layers. `depth` is the number of the model's last layer,
    as far as that is known; `needed` is the number of tasks that a layer must have. `model` and
    `place` name the model, and site and pooling where the evaluation has several.

    >>> grid = layerscope.open_evaluation("scores.csv").grids()[0]
    >>> grid.name, grid.layers, grid.tasks, grid.best
    ('small', [0, 1, 2, 3], ['topics', 'duplicates'], 2)
    """

    about: dict[str, Any]
    model: str
    place: str
    unit: Unit
    rows: pd.DataFrame = field(repr=False)
    scores: pd.DataFrame
    complete: pd.DataFrame
    left_out: tuple[int, ...]
    depth: int
    needed: int

    @property
    def name(self) -> str:
        """The model, with revision, site and pooling where the evaluation has several."""
        return f"{self.model} {self.place}".strip()

    @property
    def layers(self) -> list[int]:
        """Every layer there is a row of."""
        return list(self.scores.index)

    @property
    def tasks(self) -> list[str]:
        """Every task, those with gaps too."""
        return list(self.scores.columns)

    @cached_property
    def baseline(self) -> pd.Series:
        """Scores of the model as shipped by task."""
        return self.rows[self.rows["kind"] == "baseline"].set_index("task")["score"]

    @cached_property
    def mixes(self) -> pd.DataFrame:
        """The rows of mixes of layers, task by task; without rows where none were scored."""
        return self.rows[self.rows["kind"] == "mix"]

    @property
    def shipped(self) -> float:
        """Mean score of the model as shipped over the tasks of the averages, NaN where one is missing."""
        return self.mean(None)

    def mean(self, name: Key) -> float:
        """Return the mean score of a mix, or of the model as shipped, over the tasks of the averages."""
        if self.complete.empty:
            return math.nan
        values = [self.at(name, task).value for task in self.complete]
        return float(np.mean(values))

    @cached_property
    def gains_of_mixes(self) -> pd.DataFrame:
        """By mix its mean `gain` over the best single layer on the tasks that have one, and the standard `error`."""
        learned = self.mixes[self.mixes["gain"].notna()].groupby("mix", sort=False)
        means = {
            "gain": learned["gain"].mean(),
            "error": learned["gain_error"].agg(error_of_mean),
        }
        return pd.DataFrame(means).astype("float64")

    @cached_property
    def average(self) -> pd.Series:
        """Mean score by layer over the tasks that all layers have.

        Layers that are left out are not in it.
        """
        if self.complete.empty:
            return pd.Series(dtype=np.float64)
        return self.complete.mean(axis=1)

    @property
    def best(self) -> int | None:
        """The layer of the highest average: see `best_layer`."""
        return best_layer(self.average)

    @property
    def missing(self) -> int:
        """Number of (layer, task) pairs without a score."""
        return int(self.scores.isna().to_numpy().sum())

    @cached_property
    def _by_place(self) -> dict[tuple[Key, str], Score]:
        rows = self.rows
        from_interval = (rows["high"] - rows["low"]) / (2 * INTERVAL)
        errors = rows["stderr"].fillna(from_interval)
        # a layer, the name of a mix, or None
        keys = rows["layer"].astype(object).where(rows["layer"].notna(), rows["mix"])
        places = zip(keys, rows["task"], strict=True)
        return dict(zip(places, map(Score, rows["score"], errors), strict=True))

    def at(self, layer: Key, task: str) -> Score:
        """Return the score of a layer, or mix of layers, (None: of the model as shipped) on a task."""
        return self._by_place.get((layer, task), Score(math.nan, math.nan))

    def error(self, layer: Key) -> float:
        """Return the standard error of a layer's average, its tasks drawn apart.

        It is NaN where one of theirs is unknown.
        """
        return error_of_mean([self.at(layer, task).error for task in self.complete])

    def best_on(self, task: str) -> int | None:
        """Return the layer of the highest score on a task: see `best_layer`."""
        return best_layer(self.scores[task])


def error_of_mean(errors: Sequence[float]) -> float:
    """Return the standard error of the mean of values that are drawn apart, by those of the values.

    >>> error_of_mean([0.03, 0.04])
    0.025
    """
    return math.hypot(*errors) / len(errors)


def candidates(scores: Scores) -> Scores:
    """Return the layers that may be chosen: all but layer 0, what the first block reads.

    >>> candidates(pd.Series([0.9, 0.5], index=[0, 1])).to_dict()
    {1: 0.5}
    """
    return scores[scores.index > 0]


def best_layer(scores: pd.Series) -> int | None:
    """Return the candidate of the highest score by layer, the shallowest of several; None where none has a score.

    >>> best_layer(pd.Series([0.9, 0.5, 0.7, 0.7], index=[0, 1, 2, 3]))
    2
    """
    scored = candidates(scores).dropna()
    if scored.empty:
        return None
    return int(scored.idxmax())


def groups(
    frame: pd.DataFrame, keys: Sequence[str]
) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield what the rows of each group share, None where it is empty, and the rows, in order of appearance."""
    for _, rows in frame.groupby(list(keys), sort=False, dropna=False):
        first = rows.iloc[0]
        yield {key: None if pd.isna(first[key]) else first[key] for key in keys}, rows


def where(frame: pd.DataFrame, about: Mapping[str, Any]) -> pd.Series:
    """Return which rows have these values in their columns; None is what is empty.

    >>> frame = pd.DataFrame({"model": ["a", "a", "b"], "site": ["raw", None, None]})
    >>> where(frame, {"model": "a", "site": None}).tolist()
    [False, True, False]
    """
    same = pd.Series(True, index=frame.index)
    for column, value in about.items():
        same &= frame[column].isna() if value is None else frame[column] == value
    return same


def wide(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return scores with the tasks as columns, in order of appearance.

    >>> rows = pd.DataFrame({"layer": [1, 1, 2], "task": ["b", "a", "b"], "score": [0.5, 0.6, 0.7]})
    >>> wide(rows, ["layer"]).loc[1].to_dict()
    {'b': 0.5, 'a': 0.6}
    """
    tasks = list(rows["task"].unique())
    table = rows.set_index([*keys, "task"])["score"].unstack("task")
    return table[tasks].sort_index()


def grids(scores: pd.DataFrame, depths: Mapping[str, int]) -> list[Grid]:
    """Return a grid for every model, revision, site and pooling of the long frame of an evaluation.

    `MIN_SHARE` is of the most tasks that any of them has, so that averages over one task and over
    many do not stand beside each other. `depths` are last layers by model; one that is not there
    has the last layer it has a score of.
    """
    layers = scores[scores["kind"] == "layer"]
    mixes = scores[scores["kind"] == "mix"]
    shipped = scores[scores["kind"] == "baseline"]
    unit = Unit(bool(scores["score"].abs().max() <= 1))
    scored = layers[layers["score"].notna()].groupby(list(VARIANT), dropna=False)
    most = scored["task"].nunique().max()
    entries = []
    for about, rows in groups(layers, VARIANT):
        model = {key: about[key] for key in ("model", "revision")}
        beside = [mixes[where(mixes, about)], shipped[where(shipped, model)]]
        by_layer = wide(rows.astype({"layer": "int64"}), ["layer"])
        needed = math.ceil(MIN_SHARE * max(most, rows["task"].nunique()) - 1e-9)
        enough = _has_enough(by_layer, needed)
        last = depths.get(about["model"], 0)
        grid = Grid(
            about,
            *_names(about, layers),
            unit,
            rows=pd.concat([rows, *beside]),
            scores=by_layer,
            complete=by_layer[enough].dropna(axis=1),
            left_out=tuple(by_layer.index[~enough]),
            depth=max(last, int(by_layer.index.max())),
            needed=needed,
        )
        entries.append(grid)
    return entries


def _names(about: Mapping[str, Any], layers: pd.DataFrame) -> tuple[str, str]:
    """Return a model's name, and site and pooling: what tells it from the others among these rows."""
    model = str(about["model"])
    revision = str(about["revision"])
    if layers.loc[layers["model"] == model, "revision"].nunique() > 1:
        # a commit is known by its first digits
        if re.fullmatch("[0-9a-f]{40}", revision):
            revision = revision[:7]
        model += f"@{revision}"
    names = {"site": about["site"], "pooling": pooling_name(about["pooling"])}
    place = [
        name
        for key, name in names.items()
        if about[key] and layers[key].nunique(dropna=False) > 1
    ]
    return plain(model), plain(" ".join(place))


def _has_enough(by_layer: pd.DataFrame, needed: int) -> pd.Series:
    """Return which layers have scores on enough tasks.

    A task whose only gap is at the embeddings, which may have no score, outweighs them.
    """
    enough = by_layer.notna().sum(axis=1) >= needed
    is_block = by_layer.index != 0
    tasks = by_layer[enough & is_block].dropna(axis=1).columns
    return enough & (is_block | by_layer[tasks].notna().all(axis=1))


def summary(entries: list[Grid]) -> pd.DataFrame:
    """Return a row per grid with the columns of `SUMMARY`.

    Raises `LayerscopeError` where no row could hold a score.
    """
    if all(grid.complete.empty for grid in entries):
        raise LayerscopeError(
            "no layer and task are left for an average: evaluate more tasks on each layer, or leave out the layers "
            "with gaps"
        )
    frame = pd.DataFrame([summary_row(grid) for grid in entries], columns=list(SUMMARY))
    whole = [name for name in SUMMARY if name.endswith("_layer")]
    return frame.astype(dict.fromkeys(whole, "Int64"))


def summary_row(grid: Grid) -> dict[str, Any]:
    """Return what the scores of one model come to, without its numbers where no layer is complete."""
    average = grid.average
    best = grid.best
    row = grid.about | {
        "missing": grid.missing,
        "left_out": list(grid.left_out),
        "layers": len(grid.complete),
        "tasks": grid.complete.shape[1],
    }
    if average.empty:
        return row
    return row | {
        "first": average.iloc[0],
        "mean_over_layers": average.mean(),
        "last": average.get(grid.depth, math.nan),
        "oracle": candidates(grid.complete).max().mean(),
        "best": math.nan if best is None else average[best],
        "best_layer": best,
        "baseline": grid.shipped,
        "first_layer": average.index[0],
        "last_layer": grid.depth,
    }
