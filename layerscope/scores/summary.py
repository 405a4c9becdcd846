"""Scores of one model by layer and task, and what they come to: first, mean, best, last layer, per-task oracle."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pandas as pd

from layerscope.core.errors import LayerscopeError
from layerscope.core.option_kinds import Number

MIN_SHARE = 25 / 32
"""A layer with scores on a smaller share of the tasks is left out of every average: 25 of 32 in Layer by Layer."""
SHARE = Number(above=0, most=1)
VARIANT = ("model", "revision", "site", "pooling")
"""What one set of scores by layer is about."""
SUMMARY = (
    *VARIANT, "first", "mean_over_layers", "best", "best_layer", "last", "oracle", "baseline", "first_layer",
    "last_layer", "layers", "tasks", "missing", "left_out",
)  # fmt: skip
Scores = TypeVar("Scores", pd.Series, pd.DataFrame)


@dataclass(frozen=True)
class Grid:
    """Scores of one model, revision, site and pooling.

    `rows` are those of the long frame, with those of the model as shipped; `scores` is layer × task, every layer and
    task there is; `complete` the layers with enough tasks × the tasks present at each of these; `left_out` the other
    layers. `depth` is the number of the model's last layer, as far as that is known; `needed` is the number of tasks
    that a layer must have.
    """

    about: dict[str, Any]
    rows: pd.DataFrame = field(repr=False)
    scores: pd.DataFrame
    complete: pd.DataFrame
    left_out: tuple[int, ...]
    depth: int
    needed: int

    @property
    def baseline(self) -> pd.Series:
        """Scores of the model as shipped by task."""
        return self.rows[self.rows["kind"] == "baseline"].set_index("task")["score"]

    @property
    def shipped(self) -> float:
        """Mean score of the model as shipped over the tasks of the averages, NaN where one is missing."""
        return float(self.baseline.reindex(self.complete.columns).mean(skipna=False))

    @property
    def last(self) -> float:
        """Mean score of the model's last layer, NaN where that is not among the complete ones."""
        return float(self.average.get(self.depth, math.nan))

    @property
    def is_partial(self) -> bool:
        """Whether the model's last layer has no average, or the averages are over too few tasks."""
        return self.depth not in self.complete.index or self.complete.shape[1] < self.needed

    @property
    def missing(self) -> int:
        """Number of (layer, task) pairs without a score."""
        return int(self.scores.isna().to_numpy().sum())

    @property
    def average(self) -> pd.Series:
        """Mean score by layer, over the tasks present at every layer that is not left out."""
        return self.complete.mean(axis=1)

    @property
    def oracle(self) -> float:
        """Mean over tasks of the score of each one's best layer, NaN where only layer 0 is complete."""
        return float(candidates(self.complete).max().mean())


def candidates(scores: Scores) -> Scores:
    """Return the layers that may be chosen: all but layer 0, what the first block reads."""
    return scores[scores.index > 0]


def best_layer(scores: pd.Series) -> int | None:
    """Return the candidate of the highest score by layer, the shallowest of several; None where none has a score."""
    known = candidates(scores).dropna()
    return int(known.idxmax()) if len(known) else None


def groups(frame: pd.DataFrame, keys: list[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield what the rows of each group share, None where it is empty, and the rows, in order of appearance."""
    for _, rows in frame.groupby(keys, sort=False, dropna=False):
        first = rows.iloc[0]
        yield {key: None if pd.isna(first[key]) else first[key] for key in keys}, rows


def grids(scores: pd.DataFrame, min_share: float, depths: Mapping[str, int] | None = None) -> list[Grid]:
    """Return a grid for every model, revision, site and pooling of the long frame of an evaluation.

    `min_share` is of the most tasks that any of them has, so that averages over one task and over many do not stand
    beside each other. `depths` are last layers by model; one that is not there has the last layer it has a score of.
    """
    SHARE.take("min_share", min_share)
    found = list(groups(scores[scores["kind"] == "layer"], list(VARIANT)))
    most = max((rows.loc[rows["score"].notna(), "task"].nunique() for _, rows in found), default=0)
    baselines = scores[scores["kind"] == "baseline"]
    made = []
    for about, rows in found:
        shipped = baselines[(baselines["model"] == about["model"]) & (baselines["revision"] == about["revision"])]
        needed = math.ceil(min_share * max(most, rows["task"].nunique()) - 1e-9)
        made.append(_grid(about, rows, shipped, needed, (depths or {}).get(about["model"], 0)))
    return made


def wide(rows: pd.DataFrame, keys: list[str], values: str = "score") -> pd.DataFrame:
    """Return scores, or another column, with the tasks as columns, in order of appearance."""
    tasks = list(rows["task"].unique())
    found = rows.pivot(index=keys if len(keys) > 1 else keys[0], columns="task", values=values)
    return found[tasks].sort_index()


def _grid(about: dict[str, Any], rows: pd.DataFrame, shipped: pd.DataFrame, needed: int, depth: int) -> Grid:
    scores = wide(rows.astype({"layer": "int64"}), ["layer"])
    enough = scores.notna().sum(axis=1) >= needed
    # a task whose only gap is at the embeddings, which may have no score, outweighs them
    blocks = scores[enough & (scores.index != 0)].dropna(axis=1)
    enough &= (scores.index != 0) | scores[blocks.columns].notna().all(axis=1)
    left_out = tuple(int(layer) for layer in scores.index[~enough])
    known, deepest = pd.concat([rows, shipped]), max(depth, int(scores.index.max()))
    return Grid(about, known, scores, scores[enough].dropna(axis=1), left_out, deepest, needed)


def summary(found: list[Grid]) -> pd.DataFrame:
    """Return a row per grid with the columns of `SUMMARY`; raises `LayerscopeError` where no row could hold a score."""
    if all(grid.complete.empty for grid in found):
        raise LayerscopeError(_nothing_left(found))
    frame = pd.DataFrame([summary_row(grid) for grid in found], columns=list(SUMMARY))
    whole = [name for name in SUMMARY if name.endswith("_layer")]
    return frame.astype(dict.fromkeys(whole, "Int64"))


def summary_row(grid: Grid) -> dict[str, Any]:
    """Return what the scores of one model come to, without its numbers where no layer is complete."""
    counts = {"missing": grid.missing, "left_out": list(grid.left_out), "layers": len(grid.complete)}
    row = {**grid.about, **counts, "tasks": grid.complete.shape[1]}
    if grid.complete.empty:
        return row
    average = grid.average
    best = best_layer(average)
    return row | {
        "first": average.iloc[0], "mean_over_layers": average.mean(), "last": grid.last, "oracle": grid.oracle,
        "best": math.nan if best is None else average[best], "best_layer": best, "baseline": grid.shipped,
        "first_layer": average.index[0], "last_layer": grid.depth,
    }  # fmt: skip


def _nothing_left(found: list[Grid]) -> str:
    if all(len(grid.left_out) == len(grid.scores) for grid in found):
        most = max(int(grid.scores.notna().sum(axis=1).max()) for grid in found)
        of = max(grid.scores.shape[1] for grid in found)
        return f"no layer has scores on enough tasks (at most {most} of {of}): lower `min_share`"
    return "no task has a score at every layer: raise `min_share`, so that layers with gaps are left out"
