"""Where scores come from: probes of a run's labels, or the tasks of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.core.errors import LayerscopeError, choices
from layerscope.core.progress import Teller
from layerscope.inputs.corpus import count
from layerscope.scores.summary import MIN_SHARE, Grid, grids
from layerscope.selection.by_score import Floats, Scored

if TYPE_CHECKING:
    from layerscope.inputs.enough import Judged
    from layerscope.runs import Run
    from layerscope.scores.evaluation import Evaluation


@dataclass(frozen=True)
class Wanted:
    """Which of several models, revisions, sites and poolings is meant, where it is said."""

    model: str | None = None
    revision: str | None = None
    site: str | None = None
    pooling: str | None = None
    tasks: Mapping[str, float] | None = None
    """Weights of the tasks that count; None is all alike."""


def has_labels(run: Run) -> bool:
    """Return whether a run's samples have labels that can be probed."""
    from layerscope.profiling.tables.labels import can_be_probed

    labels = run.folder.labels()
    return labels is not None and can_be_probed(labels)


def probed(run: Run, labels: Sequence[Any] | None, pooling: str, holdout: float | None, teller: Teller) -> Scored:
    """Return which samples a linear probe tells at each layer of a run, cross-validated on folds equal over layers.

    The layers are taken at the site that a truncated model yields; the baseline is the last of them. `labels`, one a
    sample in their order, stand in for the run's own. The share `holdout` of the samples, None for none, is in no fold:
    `held` says which of them the probes of all the others tell.
    """
    from layerscope.probes.linear import held_out, linear_probe_hits
    from layerscope.profiling.options import Options
    from layerscope.profiling.tables.labels import FOLDS, can_be_probed, probed_rows
    from layerscope.profiling.tables.source import Source
    from layerscope.runs.states import Column

    options = Options(**run.info["options"])
    rows = probed_rows(Source(run, options))
    known = _labels(run, labels)[rows]
    apart = held_out(known, holdout or 0, options.seed)
    if not can_be_probed(known[~apart]):
        rest = ", or leave them out" if holdout is None else f", or hold out less than --holdout {holdout:g}"
        raise LayerscopeError(f"the labels give no two classes of {FOLDS} samples to choose by: label more{rest}")
    names, sizes = np.unique(known[~apart], return_counts=True)
    kept = np.isin(known, names[sizes >= FOLDS])
    judged = _judged_of(known, kept, np.ones(len(known), dtype=bool) if holdout is None else apart)
    rows, known, apart = rows[kept], known[kept], apart[kept]
    columns = []
    with teller.bar("linear probe at every layer", run.depth + 1, "layers") as advance:
        for layer in range(run.depth + 1):
            states = run.states(pooling, (Column(run.final, layer),), rows)[:][:, 0]
            right, fold = linear_probe_hits(states, known, FOLDS, options.seed, apart)
            columns.append(right)
            advance(1)
    values = np.stack([*columns, columns[-1]], 1).astype(np.float64)
    n, name = int((~apart).sum()), run.info["data"]["name"]
    found = _of_samples(
        values[~apart], f"linear probe of {judged.classes} labels, {FOLDS}-fold, {n:,} samples of {name}"
    )
    found = replace(found, blocks=fold[~apart], basis=judged.told, lacking=judged.lacking)
    if holdout is None:
        return found
    basis = f"judged on {judged.told}; chosen on {n:,} others"
    lacking = judged.lacking and f"--holdout {holdout:g} leaves {judged.lacking}"
    held = _of_samples(values[apart], found.told) if apart.any() else None
    return replace(found, basis=basis, lacking=lacking, held=held)


def _of_samples(values: Floats, told: str) -> Scored:
    """Return the scores of samples that are right, 1, or wrong, 0, at each layer and at the baseline."""
    means = values.mean(0)
    errors = np.sqrt(means * (1 - means) / len(values))
    return Scored(tuple(range(values.shape[1] - 1)), values, errors, "sample", told)


def _judged_of(labels: Any, kept: npt.NDArray[np.bool_], part: npt.NDArray[np.bool_]) -> Judged:
    """Return what is judged of a part of the samples, those of classes too small being skipped."""
    from layerscope.inputs.enough import Judged

    return Judged(int((part & kept).sum()), len(np.unique(labels[kept])), int((part & ~kept).sum()))


def _labels(run: Run, labels: Sequence[Any] | None) -> Any:
    """Return a label for every row of the plan."""
    plan = run.folder.plan
    if labels is None:
        return plan["label"].to_numpy()
    named, total = np.asarray(labels), int(run.info["data"]["samples"])
    if named.shape != (total,):
        raise LayerscopeError(f"labels has shape {named.shape}: give one label for each of the {total:,} samples")
    return named[plan["sample"].to_numpy()]


def judged(evaluation: Evaluation, wanted: Wanted) -> tuple[Grid, Scored, list[Scored], bool, list[str]]:
    """Return the scores of one model of an evaluation on its tasks, then on each, with what is to be said about them.

    The flag says whether their baseline is the model as shipped; its last layer stands for one that was not scored.
    """
    own = evaluation.scores
    grid = _one(_of_tasks(evaluation, own, wanted.tasks), wanted)
    own = own[(own["model"] == grid.about["model"]) & (own["revision"] == grid.about["revision"])]
    grid = _one(_of_tasks(evaluation, own, wanted.tasks), wanted)  # the tasks of other models do not matter here
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
    missing = [task for task in wanted.tasks or () if task not in tasks]
    if missing:
        raise LayerscopeError(
            f"task {missing[0]!r} has no score at every layer: evaluate it, or leave it out of --tasks"
        )
    shares = np.array([(wanted.tasks or {}).get(task, 1.0) for task in tasks])
    errors = _errors(evaluation, grid, layers, tasks)
    scored = Scored(
        layers, values, np.sqrt(np.square(shares / shares.sum()) @ np.square(errors)), "task",
        tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks", weights=None if wanted.tasks is None else shares,
        blocks=np.arange(len(tasks)) if len(tasks) > 2 else None, basis=count(len(tasks), "task"),
    )  # fmt: skip
    return grid, scored, [_of_one(scored, i, task, errors) for i, task in enumerate(tasks)], is_shipped, notes


def _of_one(scored: Scored, row: int, task: str, errors: Floats) -> Scored:
    """Return the scores of one task alone."""
    return Scored(scored.layers, scored.values[[row]], errors[row], "task", task)


def _of_tasks(evaluation: Evaluation, scores: pd.DataFrame, tasks: Mapping[str, float] | None) -> list[Grid]:
    """Return the grids of the tasks that count."""
    known = list(map(str, scores["task"].unique()))
    for task, weight in (tasks or {}).items():
        if task not in known:
            raise LayerscopeError(f"task {task!r} is not in this evaluation{choices(task, known, 'it has')}")
        if not (math.isfinite(weight) and weight > 0):
            raise LayerscopeError(f"the weight of task {task!r} is {weight}: give a number above 0")
    depths = {name: origin.depth for name, origin in evaluation.origins.items()}
    return grids(scores if tasks is None else scores[scores["task"].isin(list(tasks))], MIN_SHARE, depths)


def _errors(evaluation: Evaluation, grid: Grid, layers: Sequence[int], tasks: Sequence[str]) -> Floats:
    """Return the standard error of each task at each layer and of the baseline, NaN where it is not told."""
    rows = evaluation.scores
    rows = rows[(rows["model"] == grid.about["model"]) & (rows["revision"] == grid.about["revision"])]
    of_layers = rows[(rows["kind"] == "layer") & _at(rows, grid)].assign(layer=lambda frame: frame["layer"].astype(int))
    found = of_layers.pivot(index="task", columns="layer", values="stderr").reindex(index=tasks, columns=list(layers))
    base = rows[rows["kind"] == "baseline"]
    last = found.iloc[:, -1] if base.empty else base.set_index("task")["stderr"].reindex(tasks)
    return np.column_stack([found.to_numpy(dtype=np.float64), last.to_numpy(dtype=np.float64)])


def _at(rows: pd.DataFrame, grid: Grid) -> Any:
    fits = np.ones(len(rows), dtype=bool)
    for name in ("site", "pooling"):
        value = grid.about[name]
        fits &= (rows[name].isna() if value is None else rows[name] == value).to_numpy()
    return fits


def _one(found: Sequence[Grid], wanted: Wanted) -> Grid:
    """Return the scores that are meant; of two sites it is the normed one, which a truncated model yields."""
    if wanted.site is None and any(grid.about["site"] == "normed" for grid in found):
        found = [grid for grid in found if grid.about["site"] in ("normed", None)]
    for name in ("model", "revision", "site", "pooling"):
        known = list(dict.fromkeys(str(grid.about[name] or "") for grid in found))
        asked = getattr(wanted, name)
        if asked is None:
            if len(known) > 1:
                raise LayerscopeError(
                    f"this evaluation has several {name}s ({', '.join(known)}): name one, --{name} {known[0]}"
                )
            continue
        if asked not in known:
            raise LayerscopeError(f"{name} {asked!r} is not in this evaluation{choices(asked, known, 'it has')}")
        found = [grid for grid in found if str(grid.about[name] or "") == asked]
    return found[0]
