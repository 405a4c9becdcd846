"""Scores of an evaluation's layers: on tasks, or of one or two tasks on their samples."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from layerscope.core.errors import LayerscopeError, choices, count
from layerscope.inputs.corpus import LEAST
from layerscope.profiling.source import FOLDS
from layerscope.scores.evaluation import Evaluation
from layerscope.scores.grids import Grid, grids, where
from layerscope.scores.naming import VARIANT
from layerscope.scores.shifts import hits_of
from layerscope.selection.options import Variant
from layerscope.selection.scored import LAST, SHIPPED, Floats, Scored, of_samples

Tasks = Mapping[str, float] | None
"""Weights of the tasks that count; None is all of them alike."""


def by_beginning(
    weights: Mapping[str, float], names: Sequence[str]
) -> dict[str, float]:
    """Return the weights of tasks by their whole names: a beginning stands for the only one that begins so.

    >>> from layerscope.selection.task_scores import by_beginning
    >>> by_beginning({"trec": 2.0}, ["TREC (linear probe)", "STS12"])
    {'TREC (linear probe)': 2.0}
    """
    whole = {}
    for beginning, weight in weights.items():
        begun = [name for name in names if name.lower().startswith(beginning.lower())]
        is_whole = beginning in names or len(begun) != 1
        whole[beginning if is_whole else begun[0]] = weight
    return whole


def grid_of(evaluation: Evaluation, variant: Variant, tasks: Tasks) -> Grid:
    """Return the scores of one model of an evaluation on these tasks, None for all."""
    scores = evaluation.scores
    rows = _of_tasks(scores, tasks)
    about = _one(
        rows.loc[rows["kind"] == "layer", list(VARIANT)].drop_duplicates(), variant
    )
    of_model = scores[where(scores, {key: about[key] for key in ("model", "revision")})]
    depths = {name: origin.depth for name, origin in evaluation.origins.items()}
    candidates = grids(_of_tasks(of_model, tasks), depths)
    return next(grid for grid in candidates if grid.about == about)


def judged(grid: Grid, tasks: Tasks) -> tuple[Scored, list[str]]:
    """Return the scores of one model on its tasks, and notes on them."""
    complete, notes = grid.complete, []
    if complete.empty:
        raise LayerscopeError(
            "no task has a score at every layer: evaluate the missing ones first"
        )
    if grid.left_out:
        notes.append(
            f"left out with too few scores: layers {', '.join(map(str, grid.left_out))}"
        )
    names = list(map(str, complete.columns))
    for task in tasks or ():
        if task not in names:
            raise LayerscopeError(
                f"task {task!r} has no score at every layer: evaluate it, or leave it out of `tasks`"
            )
    layers = tuple(map(int, complete.index))
    is_shipped = bool(grid.baseline.reindex(names).notna().all())
    if not is_shipped:
        if grid.depth not in complete.index:
            raise LayerscopeError(
                f"neither the model as shipped nor its last layer, {grid.depth}, has enough scores: "
                "evaluate one"
            )
        notes.append(
            f"the model as shipped was not scored: its last layer, {grid.depth}, stands in for it"
        )
    columns = (*layers, None if is_shipped else grid.depth)
    weights = np.array([(tasks or {}).get(task, 1.0) for task in names])
    scored = _by_samples(grid, names, columns, weights) if len(names) < 3 else None
    if scored is None:
        scored = _by_tasks(grid, names, columns, weights)
    return replace(scored, baseline_name=SHIPPED if is_shipped else LAST), notes


def _by_tasks(
    grid: Grid, tasks: Sequence[str], columns: Sequence[int | None], weights: Floats
) -> Scored:
    """Return the scores of each task in each column, a layer, or None for the model as shipped."""
    layers = grid.complete.index
    values = np.array(
        [[grid.at(column, task).value for column in columns] for task in tasks]
    )
    errors = np.array(
        [[grid.at(column, task).error for column in columns] for task in tasks]
    )
    shares = weights / weights.sum()
    few = ", which decide little" if len(tasks) == 2 else ""
    return Scored(
        tuple(map(int, layers)),
        values,
        np.sqrt(np.square(shares) @ np.square(errors)),
        "task",
        _averaged(tasks),
        blocks=np.arange(len(tasks)) if len(tasks) > 2 else None,
        weights=None if np.ptp(weights) == 0 else weights,
        basis=count(len(tasks), "task") + few,
    )


def _averaged(tasks: Sequence[str]) -> str:
    """Name the task, or those that a score is the average of, as far as a line holds them."""
    if len(tasks) == 1:
        return tasks[0]
    more = ", …" if len(tasks) > 3 else ""
    return f"average of {len(tasks)} tasks ({', '.join(tasks[:3])}{more})"


def _by_samples(
    grid: Grid, tasks: Sequence[str], columns: Sequence[int | None], weights: Floats
) -> Scored | None:
    """Return the scores of one or two tasks by their samples, in seeded blocks; None where not all are known.

    Each task has its weight as a whole.
    """
    hits = hits_of(grid, tasks, columns)
    if not hits:
        return None
    layers = tuple(map(int, grid.complete.index))
    sizes = [len(right) for right in hits]
    order = np.random.default_rng(0)
    blocks = [order.permutation(size) % FOLDS for size in sizes]
    lacking = ""
    # a probe learns from the samples that it judges; the samples of mteb's tasks only measure
    is_of_probes = all(bool(np.isin(right, (0, 1)).all()) for right in hits)
    if is_of_probes and min(sizes) < LEAST:
        lacking = (
            f"only {min(sizes)} samples: {LEAST} judged samples are needed, label more"
        )
    shares = weights / weights.sum()
    return replace(
        of_samples(np.concatenate(hits), _averaged(tasks), layers=layers),
        errors=np.sqrt(
            np.square(shares)
            @ np.square([right.std(0) / math.sqrt(len(right)) for right in hits])
        ),
        blocks=np.concatenate(blocks),
        weights=np.repeat(weights / sizes, sizes),
        basis=f"{count(sum(sizes), 'sample')} of {count(len(tasks), 'task')}",
        lacking=lacking,
    )


def _of_tasks(rows: pd.DataFrame, tasks: Tasks) -> pd.DataFrame:
    if tasks is None:
        return rows
    names = list(map(str, rows["task"].unique()))
    for task, weight in tasks.items():
        if task not in names:
            raise LayerscopeError(
                f"task {task!r} is not in this evaluation{choices(task, names, 'it has')}"
            )
        if not (math.isfinite(weight) and weight > 0):
            raise LayerscopeError(
                f"the weight of task {task!r} is {weight}: give a number above 0"
            )
    return rows[rows["task"].isin(list(tasks))]


def _one(variants: pd.DataFrame, wanted: Variant) -> dict[str, Any]:
    """Return the model, revision, site and pooling that are meant; of two sites the normed one."""
    if wanted.site is None and (variants["site"] == "normed").any():
        variants = variants[variants["site"].isna() | (variants["site"] == "normed")]
    for column in VARIANT:
        values = variants[column].fillna("").astype(str)
        names, name = list(values.unique()), getattr(wanted, column)
        if name is None and len(names) > 1:
            raise LayerscopeError(
                f"this evaluation has several {column}s ({', '.join(names)}): name one, `{column}={names[0]!r}`"
            )
        if name is not None and name not in names:
            raise LayerscopeError(
                f"{column} {name!r} is not in this evaluation{choices(name, names, 'it has')}"
            )
        if name is not None:
            variants = variants[values == name]
    row = variants.iloc[0]
    return {key: None if pd.isna(value) else value for key, value in row.items()}
