"""Where scores come from: probes of a run's labels, or the tasks of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from layerscope.core.errors import LayerscopeError, choices
from layerscope.core.options import Asked
from layerscope.core.progress import Reporter
from layerscope.core.words import count
from layerscope.scores.summary import MIN_SHARE, VARIANT, Grid, grids, wide
from layerscope.selection.by_score import LAST, SHIPPED, Floats, Scored

if TYPE_CHECKING:
    from layerscope.runs import Run
    from layerscope.scores.evaluation import Evaluation


def has_labels(run: Run) -> bool:
    """Return whether a run's samples have labels that can be probed."""
    from layerscope.profiling.source import can_be_probed

    labels = run.folder.labels()
    return labels is not None and can_be_probed(labels)


def probed(run: Run, labels: Sequence[Any] | None, pooling: str, holdout: float | None, reporter: Reporter) -> Scored:
    """Return which samples a linear probe gets right at each layer of a run, cross-validated on the same folds.

    The layers are taken at the site that a truncated model yields; the baseline is the last of them. `labels`, one a
    sample in their order, stand in for the run's own. The share `holdout` of the samples, None for none, is in no fold:
    `held` says which of them the probes of all the others get right.
    """
    from layerscope.inputs.enough import Judged
    from layerscope.probes.linear import held_out, linear_probe_hits
    from layerscope.profiling.plan import Options
    from layerscope.profiling.source import FOLDS, Source, can_be_probed
    from layerscope.runs.states import Column

    options = Options(**run.info["options"])
    rows = Source(run, options).probed
    known = _labels(run, labels)[rows]
    apart = held_out(known, holdout or 0, options.seed)
    if not can_be_probed(known[~apart]):
        rest = "leave them out" if holdout is None else f"hold out less than `holdout={holdout:g}`"
        raise LayerscopeError(f"a probe needs two classes with {FOLDS} samples each: label more, or {rest}")
    names, sizes = np.unique(known[~apart], return_counts=True)
    kept = np.isin(known, names[sizes >= FOLDS])
    part = np.ones(len(known), dtype=bool) if holdout is None else apart
    judged = Judged(int((part & kept).sum()), int((sizes >= FOLDS).sum()), int((part & ~kept).sum()))
    rows, known, apart = rows[kept], known[kept], apart[kept]
    columns = []
    with reporter.bar("linear probe at every layer", run.depth + 1, "layers") as advance:
        for layer in range(run.depth + 1):
            states = run.states(pooling, (Column(run.final, layer),), rows)[:][:, 0]
            right, fold, *_ = linear_probe_hits(states, known, FOLDS, options.seed, apart)
            columns.append(right)
            advance(1)
    values = np.stack([*columns, columns[-1]], 1).astype(np.float64)
    n = int((~apart).sum())
    title = f"linear probe of {judged.classes} labels, {FOLDS}-fold, {n:,} samples of {run.info['data']['name']}"
    found = replace(_of_samples(values[~apart], title), blocks=fold[~apart])
    if holdout is None:
        return replace(found, basis=judged.text, lacking=judged.lacking)
    return replace(
        found, basis=f"judged on {judged.text}; chosen on {n:,} others",
        lacking=judged.lacking and f"`holdout={holdout:g}` leaves {judged.lacking}",
        held=_of_samples(values[apart], title) if apart.any() else None,
    )  # fmt: skip


def _of_samples(values: Floats, title: str) -> Scored:
    """Return the scores of samples that are right, 1, or wrong, 0, at each layer and at the baseline."""
    means = values.mean(0)
    errors = np.sqrt(means * (1 - means) / len(values))
    return Scored(tuple(range(values.shape[1] - 1)), values, errors, "sample", title)


def _labels(run: Run, labels: Sequence[Any] | None) -> Any:
    """Return a label for every row of the plan."""
    plan = run.folder.plan
    if labels is None:
        return plan["label"].to_numpy()
    named, total = np.asarray(labels), int(run.info["data"]["samples"])
    if named.shape != (total,):
        raise LayerscopeError(f"labels has shape {named.shape}: give one label for each of the {total:,} samples")
    return named[plan["sample"].to_numpy()]


def judged(evaluation: Evaluation, asked: Asked) -> tuple[Grid, Scored, list[str]]:
    """Return the scores of one model of an evaluation on its tasks, together and each alone, and notes on them.

    `asked` names model, revision, site, pooling and tasks, each None where it is not named.
    """
    scores = evaluation.scores
    rows = _of_tasks(scores, asked.tasks)
    about = _one(rows.loc[rows["kind"] == "layer", list(VARIANT)].drop_duplicates(), asked)
    own = scores[(scores["model"] == about["model"]) & (scores["revision"] == about["revision"])]
    found = grids(_of_tasks(own, asked.tasks), MIN_SHARE, {k: origin.depth for k, origin in evaluation.origins.items()})
    grid = next(grid for grid in found if all(_same(grid.about[key], about[key]) for key in VARIANT))
    complete, notes = grid.complete, []
    if complete.empty:
        raise LayerscopeError("no task has a score at every layer: evaluate the missing ones first")
    if grid.left_out:
        notes.append(f"left out with too few scores: layers {', '.join(map(str, grid.left_out))}")
    layers, tasks = tuple(map(int, complete.index)), list(map(str, complete.columns))
    baseline = grid.baseline.reindex(tasks)
    is_shipped = bool(baseline.notna().all())
    if not is_shipped:
        if grid.depth not in layers:
            raise LayerscopeError(
                f"neither the model as shipped nor its last layer, {grid.depth}, has enough scores: evaluate one"
            )
        baseline = complete.loc[grid.depth]
        notes.append(f"the model as shipped was not scored: its last layer, {grid.depth}, stands in for it")
    for task in asked.tasks or ():
        if task not in tasks:
            raise LayerscopeError(f"task {task!r} has no score at every layer: evaluate it, or leave it out of `tasks`")
    values = np.column_stack([complete.to_numpy(dtype=np.float64).T, baseline.to_numpy(dtype=np.float64)])
    errors = _errors(grid, layers, tasks)
    weights = np.array([(asked.tasks or {}).get(task, 1.0) for task in tasks])
    alone = tuple(Scored(layers, values[[i]], errors[i], "task", task) for i, task in enumerate(tasks))
    scored = Scored(
        layers, values, np.sqrt(np.square(weights / weights.sum()) @ np.square(errors)), "task",
        tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks", weights=None if asked.tasks is None else weights,
        blocks=np.arange(len(tasks)) if len(tasks) > 2 else None, basis=count(len(tasks), "task"),
        by_task=alone if len(tasks) > 1 else (), baseline_name=SHIPPED if is_shipped else LAST,
    )  # fmt: skip
    return grid, scored, notes


def _of_tasks(rows: pd.DataFrame, tasks: Mapping[str, float] | None) -> pd.DataFrame:
    """Return the scores on the tasks that count."""
    known = list(map(str, rows["task"].unique()))
    for task, weight in (tasks or {}).items():
        if task not in known:
            raise LayerscopeError(f"task {task!r} is not in this evaluation{choices(task, known, 'it has')}")
        if not (math.isfinite(weight) and weight > 0):
            raise LayerscopeError(f"the weight of task {task!r} is {weight}: give a number above 0")
    return rows if tasks is None else rows[rows["task"].isin(list(tasks))]


def _errors(grid: Grid, layers: Sequence[int], tasks: Sequence[str]) -> Floats:
    """Return the standard error of each task at each layer and of the baseline, NaN where it is unknown."""
    found = wide(grid.rows[grid.rows["kind"] == "layer"], ["layer"], "stderr").T.reindex(index=tasks, columns=layers)
    shipped = grid.rows[grid.rows["kind"] == "baseline"].set_index("task")["stderr"].reindex(tasks)
    last = found.iloc[:, -1] if grid.baseline.empty else shipped
    return np.column_stack([found.to_numpy(dtype=np.float64), last.to_numpy(dtype=np.float64)])


def _one(known: pd.DataFrame, asked: Asked) -> dict[str, Any]:
    """Return the model, revision, site and pooling that are meant; of two sites the normed one."""
    if asked.site is None and (known["site"] == "normed").any():
        known = known[known["site"].isna() | (known["site"] == "normed")]
    for name in VARIANT:
        names = list(dict.fromkeys(known[name].fillna("").astype(str)))
        wanted = getattr(asked, name)
        if wanted is None and len(names) > 1:
            raise LayerscopeError(
                f"this evaluation has several {name}s ({', '.join(names)}): name one, `{name}={names[0]!r}`"
            )
        if wanted is not None:
            if wanted not in names:
                raise LayerscopeError(f"{name} {wanted!r} is not in this evaluation{choices(wanted, names, 'it has')}")
            known = known[known[name].fillna("") == wanted]
    return dict(known.iloc[0])


def _same(one: Any, two: Any) -> bool:
    return bool(one == two) or bool(pd.isna(one) and pd.isna(two))
