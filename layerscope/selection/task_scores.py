"""Scores of an evaluation's layers: on tasks, or of one or two tasks on their samples."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from layerscope.core import LayerscopeError, choices, count, listed
from layerscope.core.labels import LEAST
from layerscope.profiling.source import FOLDS
from layerscope.scores import Evaluation
from layerscope.scores.grids import Grid, grids, groups, where
from layerscope.scores.naming import VARIANT
from layerscope.scores.shifts import hits_of, joined
from layerscope.selection.options import Variant
from layerscope.selection.scored import LAST, SHIPPED, Scored, of_samples

Tasks = Sequence[str] | None
"""Names of the tasks that count; None is all of them."""


def whole_names(beginnings: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the whole names of tasks: a beginning stands for the only one that begins so.

    >>> from layerscope.selection.task_scores import whole_names
    >>> whole_names(["trec"], ["TREC (linear probe)", "STS12"])
    ['TREC (linear probe)']
    """
    whole = []
    for beginning in beginnings:
        start = beginning.lower()
        begun = [name for name in names if name.lower().startswith(start)]
        if beginning in names:
            begun = [beginning]
        if len(begun) != 1:
            raise LayerscopeError(
                f"task {beginning!r} is not in this evaluation{choices(beginning, names, 'it has')}"
            )
        whole += begun
    return whole


def grid_of(evaluation: Evaluation, variant: Variant, tasks: Tasks) -> Grid:
    """Return the scores of one model of an evaluation on these tasks, None for all."""
    rows = evaluation.scores
    if tasks is not None:
        rows = rows[rows["task"].isin(tasks)]
    layers = rows.loc[rows["kind"] == "layer", list(VARIANT)]
    about = _one(layers.drop_duplicates(), variant)
    model = {"model": about["model"], "revision": about["revision"]}
    of_model = rows[where(rows, model)]
    depths = {name: origin.depth for name, origin in evaluation.origins.items()}
    return next(grid for grid in grids(of_model, depths) if grid.about == about)


def judged(grid: Grid, tasks: Tasks) -> tuple[Scored, list[str]]:
    """Return the scores of one model on its tasks, and notes on them."""
    complete = grid.complete
    notes = []
    if complete.empty:
        raise LayerscopeError(
            "no task has a score at every layer: evaluate the missing ones first"
        )
    if grid.left_out:
        notes.append(
            f"left out with too few scores: layers {', '.join(map(str, grid.left_out))}"
        )
    names = list(complete.columns)
    for task in tasks or ():
        if task not in names:
            raise LayerscopeError(
                f"task {task!r} has no score at every layer: evaluate it, or leave it out of `tasks`"
            )
    baseline = None
    baseline_name = SHIPPED
    if math.isnan(grid.shipped):
        baseline = grid.depth
        baseline_name = LAST
        if baseline not in complete.index:
            raise LayerscopeError(
                f"neither the model as shipped nor its last layer, {baseline}, has enough scores: "
                "evaluate one"
            )
        notes.append(
            f"the model as shipped was not scored: its last layer, {baseline}, stands in for it"
        )
    columns = (*complete.index, baseline)
    scored = None
    if len(names) < 3:
        scored = _by_samples(grid, names, columns)
    if scored is None:
        scored = _by_tasks(grid, names, columns)
    return replace(scored, baseline_name=baseline_name), notes


def _by_tasks(
    grid: Grid, tasks: Sequence[str], columns: Sequence[int | None]
) -> Scored:
    """Return the scores of each task in each column, a layer, or None for the model as shipped."""
    scores = [[grid.at(column, task) for column in columns] for task in tasks]
    values, errors = np.moveaxis(np.array(scores), -1, 0)
    basis = count(len(tasks), "task")
    blocks = None
    if len(tasks) == 2:
        basis += ", which decide little"
    if len(tasks) > 2:
        blocks = np.arange(len(tasks))
    return Scored(
        tuple(grid.complete.index),
        values,
        np.sqrt(np.square(errors).sum(0)) / len(tasks),
        "task",
        _averaged(tasks),
        blocks,
        basis,
    )


def _averaged(tasks: Sequence[str]) -> str:
    """Name the task, or those that a score is the average of, as far as a line holds them."""
    if len(tasks) == 1:
        return tasks[0]
    return f"average of {len(tasks)} tasks ({listed(tasks, 3)})"


def _by_samples(
    grid: Grid, tasks: Sequence[str], columns: Sequence[int | None]
) -> Scored | None:
    """Return the scores of one or two tasks by their samples, in seeded blocks; None where not all are known."""
    hits = hits_of(grid, tasks, columns)
    if not hits:
        return None
    sizes = [len(right) for right in hits]
    fewest = min(sizes)
    order = np.random.default_rng(0)
    blocks = [order.permutation(size) % FOLDS for size in sizes]
    means = np.mean([right.mean(0) for right in hits], axis=0)
    values = joined(hits, means)
    # a probe learns from the samples that it judges; the samples of mteb's tasks only measure
    is_of_probes = np.isin(np.concatenate(hits), (0, 1)).all()
    lacking = ""
    if is_of_probes and fewest < LEAST:
        lacking = (
            f"only {fewest} samples: {LEAST} judged samples are needed, label more"
        )
    return replace(
        of_samples(values, _averaged(tasks), grid.complete.index),
        blocks=np.concatenate(blocks),
        basis=f"{count(len(values), 'sample')} of {count(len(tasks), 'task')}",
        lacking=lacking,
    )


def _one(variants: pd.DataFrame, wanted: Variant) -> dict[str, Any]:
    """Return the model, revision, site and pooling that are meant; of two sites the normed one."""
    if wanted.site is None and (variants["site"] == "normed").any():
        variants = variants[variants["site"].isna() | (variants["site"] == "normed")]
    for column in VARIANT:
        values = variants[column].fillna("").astype(str)
        names = list(values.unique())
        name = getattr(wanted, column)
        if name is None:
            if len(names) > 1:
                raise LayerscopeError(
                    f"this evaluation has several {column}s ({', '.join(names)}): name one, `{column}={names[0]!r}`"
                )
            continue
        if name not in names:
            raise LayerscopeError(
                f"{column} {name!r} is not in this evaluation{choices(name, names, 'it has')}"
            )
        variants = variants[values == name]
    about, _ = next(groups(variants, VARIANT))
    return about
