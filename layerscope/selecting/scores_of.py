"""Where scores come from: probes of a run's labels, or the tasks of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from layerscope.errors import LayerscopeError, choices
from layerscope.evaluation.summary import MIN_SHARE, Grid, grids
from layerscope.progress import Teller
from layerscope.selecting.scored import Floats, Scored

if TYPE_CHECKING:
    from layerscope.evaluation.evaluation import Evaluation
    from layerscope.runs import Run


@dataclass(frozen=True)
class Wanted:
    """Which of several models, revisions, sites and poolings is meant, where it is said."""

    model: str | None = None
    revision: str | None = None
    site: str | None = None
    pooling: str | None = None


def has_labels(run: Run) -> bool:
    """Return whether a run's samples have labels that can be probed."""
    from layerscope.profiling.tables.labels import can_be_probed

    plan = run.folder.plan
    return "label" in plan and can_be_probed(plan.loc[plan["view"] == 0, "label"])


def probed(run: Run, labels: Sequence[Any] | None, pooling: str, teller: Teller) -> Scored:
    """Return which samples a linear probe tells at each layer of a run, cross-validated on folds equal over layers.

    The layers are taken at the site that a truncated model yields; the baseline is the last of them. `labels`, one a
    sample in their order, stand in for the run's own.
    """
    from layerscope.evaluation.probes import linear_probe_hits
    from layerscope.profiling.options import options_of
    from layerscope.profiling.tables.labels import FOLDS, can_be_probed, probed_rows
    from layerscope.profiling.tables.source import Source
    from layerscope.runs.states import Column

    options = options_of(run.info)
    rows = probed_rows(Source(run, options))
    known = _labels(run, labels)[rows]
    if not can_be_probed(known):
        raise LayerscopeError(f"the labels give no two classes of {FOLDS} samples: label more, or leave them out")
    columns = []
    with teller.bar("linear probe at every layer", run.depth + 1, "layers") as advance:
        for layer in range(run.depth + 1):
            states = run.states(pooling, (Column(run.final, layer),), rows)[:][:, 0]
            columns.append(linear_probe_hits(states, known, FOLDS, options.seed))
            advance(1)
    values = np.stack([*columns, columns[-1]], 1).astype(np.float64)
    means = values.mean(0)
    errors = np.sqrt(means * (1 - means) / len(values))
    classes = len(pd.unique(known))
    told = f"linear probe of {classes} labels, {FOLDS}-fold, {len(values):,} samples of {run.info['data']['name']}"
    return Scored(tuple(range(run.depth + 1)), values, errors, "sample", told)


def _labels(run: Run, labels: Sequence[Any] | None) -> Any:
    """Return a label for every row of the plan."""
    plan = run.folder.plan
    if labels is None:
        return plan["label"].to_numpy()
    named, total = np.asarray(labels), int(run.info["data"]["samples"])
    if named.shape != (total,):
        raise LayerscopeError(f"labels has shape {named.shape}: give one label for each of the {total:,} samples")
    return named[plan["sample"].to_numpy()]


def judged(evaluation: Evaluation, wanted: Wanted) -> tuple[Grid, Scored, bool, list[str]]:
    """Return the scores of one model of an evaluation on its tasks, with what is to be said about them.

    The flag says whether their baseline is the model as shipped; its last layer stands for one that was not scored.
    """
    grid = _one(evaluation.grids(MIN_SHARE), wanted)
    rows, depths = evaluation.scores, {name: origin.depth for name, origin in evaluation.origins.items()}
    own = rows[(rows["model"] == grid.about["model"]) & (rows["revision"] == grid.about["revision"])]
    grid = _one(grids(own, MIN_SHARE, depths), wanted)  # the tasks of other models do not matter here
    complete = grid.complete
    if complete.empty:
        raise LayerscopeError("no task has a score at every layer: evaluate the missing ones first")
    notes = []
    if grid.left_out:
        notes.append(f"left out with too few scores: layers {', '.join(map(str, grid.left_out))}")
    baseline = grid.baseline.reindex(complete.columns)
    is_shipped = bool(baseline.notna().all())
    if not is_shipped:
        if grid.depth not in complete.index:
            raise LayerscopeError(
                f"neither the model as shipped nor its last layer, {grid.depth}, has enough scores: evaluate one"
            )
        baseline = complete.loc[grid.depth]
        notes.append(f"the model as shipped was not scored: its last layer, {grid.depth}, stands for it")
    values = np.column_stack([complete.to_numpy(dtype=np.float64).T, baseline.to_numpy(dtype=np.float64)])
    layers = tuple(int(layer) for layer in complete.index)
    tasks = list(map(str, complete.columns))
    told = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    return grid, Scored(layers, values, _errors(evaluation, grid, layers, tasks), "task", told), is_shipped, notes


def _errors(evaluation: Evaluation, grid: Grid, layers: Sequence[int], tasks: Sequence[str]) -> Floats:
    """Return the standard error of each column's mean over tasks, as far as every task tells its own."""
    rows = evaluation.scores
    rows = rows[rows["task"].isin(tasks) & (rows["model"] == grid.about["model"])]
    rows = rows[rows["revision"] == grid.about["revision"]]
    found = [_error(rows[(rows["kind"] == "layer") & (rows["layer"] == layer) & _at(rows, grid)]) for layer in layers]
    base = rows[rows["kind"] == "baseline"]
    return np.array([*found, found[-1] if base.empty else _error(base)])


def _at(rows: pd.DataFrame, grid: Grid) -> Any:
    fits = np.ones(len(rows), dtype=bool)
    for name in ("site", "pooling"):
        value = grid.about[name]
        fits &= (rows[name].isna() if value is None else rows[name] == value).to_numpy()
    return fits


def _error(rows: pd.DataFrame) -> float:
    """Return the standard error of the mean of independent scores, NaN where one of them has none."""
    errors = rows["stderr"].to_numpy(dtype=np.float64)
    return float(np.sqrt((errors**2).sum()) / len(errors)) if len(errors) else math.nan


def _one(grids: Sequence[Grid], wanted: Wanted) -> Grid:
    """Return the scores that are meant; of two sites it is the normed one, which a truncated model yields."""
    if wanted.site is None and any(grid.about["site"] == "normed" for grid in grids):
        grids = [grid for grid in grids if grid.about["site"] in ("normed", None)]
    for name in ("model", "revision", "site", "pooling"):
        known = list(dict.fromkeys(str(grid.about[name] or "") for grid in grids))
        asked = getattr(wanted, name)
        if asked is None:
            if len(known) > 1:
                raise LayerscopeError(
                    f"this evaluation has several {name}s ({', '.join(known)}): name one, --{name} {known[0]}"
                )
            continue
        if asked not in known:
            raise LayerscopeError(f"{name} {asked!r} is not in this evaluation{choices(asked, known, 'it has')}")
        grids = [grid for grid in grids if str(grid.about[name] or "") == asked]
    return grids[0]
