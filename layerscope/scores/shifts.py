"""Probes of one data set that are judged on another: which samples every layer gets right on both.

A probe that is fitted on reviews of books may be judged on reviews of films. The layer that is best
at home need not be the best one there; where it is known which samples each layer gets right, the
two are compared sample by sample, on either set.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.core.margin import error_of
from layerscope.scores.grids import Grid, error_of_mean
from layerscope.scores.naming import Unit
from layerscope.scores.probe_results import unpacked

Floats = npt.NDArray[np.float64]
Rights = dict[int | None, Floats]
"""By layer, None for the model as shipped, which samples are right, 1, or wrong, 0."""


def mean_of(values: Floats) -> tuple[float, float]:
    """Return the mean of values of samples, such as differences of two layers on the same ones, and its standard error.

    >>> mean_of(np.array([1.0, 1.0, 0.0, 1.0]) - np.array([1.0, 0.0, 0.0, 1.0]))
    (0.25, 0.25)
    """
    return float(values.mean()), error_of(values)


def joined(sets: Sequence[Floats], mean: Floats | float) -> Floats:
    """Return the values of several sets of samples as those of one, with this mean.

    All sets count alike in it: the samples of a large one count less than those of a small one.

    >>> joined([np.array([0.0, 1.0]), np.array([0.0, 1.0, 1.0, 1.0])], 0.625).tolist()
    [-0.125, 1.375, 0.0625, 0.8125, 0.8125, 0.8125]
    """
    n = sum(map(len, sets))
    parts = []
    for values in sets:
        weight = n / (len(sets) * len(values))
        parts.append((values - values.mean(0)) * weight + mean)
    return np.concatenate(parts)


def rights_of(grid: Grid) -> dict[str, Rights]:
    """Return by task and layer the values of the samples, where they are known.

    Measures that are no share of samples have other values than 1 and 0.
    """
    is_single = grid.rows["kind"] != "mix"
    rows = grid.rows[is_single & grid.rows["right"].notna()]
    right = defaultdict[str, Rights](dict)
    for row in rows.to_dict(orient="records"):
        layer = None if pd.isna(row["layer"]) else int(row["layer"])
        right[row["task"]][layer] = unpacked(row["right"], row["n"])
    return right


def hits_of(
    grid: Grid, tasks: Sequence[str], columns: Sequence[int | None]
) -> list[Floats]:
    """Return for each task the values of the samples in each column `[n, columns]`; none unless all are known.

    A column is a layer, or None for the model as shipped. A task whose items were not drawn one by
    one, such as words of sentences, has another error than its items give: it has no hits here.
    """
    right = rights_of(grid)
    hits_by_task = list[Floats]()
    for task in tasks:
        of_task = right.get(task, {})
        if not {*columns} <= of_task.keys():
            return []
        hits = np.stack([of_task[column] for column in columns], 1)
        errors = np.array([grid.at(column, task).error for column in columns])
        of_items = hits.std(0) / math.sqrt(len(hits))
        if not np.allclose(errors, of_items, rtol=1e-3, atol=1e-6):
            return []
        hits_by_task.append(hits)
    return hits_by_task


def error_of_gain(grid: Grid, layer: int | None, rival: int | None) -> float:
    """Return the standard error of what a layer scores more than another; None is the model as shipped.

    Of three tasks or more it is paired over tasks, else over the samples of each where these are
    known; else it is that of independent scores, NaN where no error is known.
    """
    tasks = list(grid.complete)
    if len(tasks) > 2:
        gains = [
            grid.at(layer, task).value - grid.at(rival, task).value for task in tasks
        ]
        return error_of(np.array(gains))
    hits = hits_of(grid, tasks, (layer, rival))
    if not hits:
        return math.hypot(grid.error(layer), grid.error(rival))
    errors = [error_of(of_task[:, 0] - of_task[:, 1]) for of_task in hits]
    return error_of_mean(errors)


def shifts_of(grid: Grid) -> Iterator[str]:
    """Yield in words the shifts that a model's layers were scored under, where it is known which samples are right."""
    right = rights_of(grid)
    sources = dict(zip(grid.rows["task"], grid.rows["shifted_from"], strict=True))
    for target, source in sources.items():
        of_target = right.get(target, {})
        of_source = right.get(source, {})
        shared = of_source.keys() & of_target.keys()
        layers = sorted(layer for layer in shared if layer)
        if layers and None in shared:
            yield shift_in_words(target, layers, of_source, of_target, grid.unit)


def shift_in_words(
    target: str, layers: Sequence[int], on_source: Rights, on_target: Rights, unit: Unit
) -> str:
    """Return which layers are best on source and target, and what the one of the target wins and loses.

    The probes were fitted on the source, whose samples they judge by cross-validation, and judge
    those of the target as they are.

    >>> right = {1: np.array([1.0, 1.0]), 2: np.array([0.0, 1.0])}  # of two samples, at two layers
    >>> shift_in_words("films", (1, 2), right, right, Unit(percent=True))
    'Layer 1 is best on source and target of films: 100.00 % and 100.00 %'
    """
    one = max(layers, key=lambda layer: on_source[layer].mean())
    two = max(layers, key=lambda layer: on_target[layer].mean())
    here = unit.text(on_source[one].mean())
    there = unit.text(on_target[two].mean())
    if one == two:
        return (
            f"Layer {one} is best on source and target of {target}: {here} and {there}"
        )
    gain = unit.difference(*mean_of(on_target[two] - on_target[one]))
    loss = unit.difference(*mean_of(on_source[two] - on_source[one]))
    return (
        f"Layer {two} is best on the target of {target}: {there}; against layer {one}, the best on the source, "
        f"{gain} there and {loss} on the source"
    )
