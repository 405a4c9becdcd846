"""Probes of one data set that are judged on another: which samples every layer gets right on both."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.core.margin import error_of
from layerscope.scores.grids import Grid
from layerscope.scores.naming import Unit
from layerscope.scores.probe_results import unpacked

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Shift:
    """Samples that are right, 1, or wrong, 0, at each layer `[n, layers]`: those of the source by cross-validation.

    `source` and `target` are tasks; the last of the `layers`, None, is the model as shipped.
    """

    source: str
    target: str
    layers: tuple[int | None, ...]
    on_source: Floats
    on_target: Floats

    def in_words(self, unit: Unit) -> str:
        """Return which layers but 0 are best on source and target, and what the one of the target wins and loses."""
        kept = [i for i, layer in enumerate(self.layers) if layer]
        one, two = (
            kept[int(values[:, kept].mean(0).argmax())]
            for values in (self.on_source, self.on_target)
        )
        here, there = (
            unit.text(self.on_source[:, one].mean()),
            unit.text(self.on_target[:, two].mean()),
        )
        if one == two:
            return f"Layer {self.layers[one]} is best on source and target of {self.target}: {here} and {there}"
        gain, loss = (
            unit.difference(*paired(on[:, two], on[:, one]))
            for on in (self.on_target, self.on_source)
        )
        return (
            f"Layer {self.layers[two]} is best on the target of {self.target}: {there}; against layer "
            f"{self.layers[one]}, the best on the source, {gain} there and {loss} on the source"
        )


def paired(one: Floats, two: Floats) -> tuple[float, float]:
    """Return the mean difference of two layers on the same samples, and its standard error."""
    return float((one - two).mean()), error_of(one - two)


def rights_of(grid: Grid) -> dict[str, dict[int | None, Floats]]:
    """Return by task and layer, None for the model as shipped, the values of the samples, where they are known.

    A sample is right, 1, or wrong, 0; measures that are no share of samples have other values.
    """
    rows = grid.rows[
        grid.rows["right"].notna() & grid.rows["kind"].isin(("layer", "baseline"))
    ]
    right: dict[str, dict[int | None, Floats]] = {}
    for task, layer, kept, n in zip(
        rows["task"], rows["layer"], rows["right"], rows["n"], strict=True
    ):
        right.setdefault(task, {})[None if pd.isna(layer) else int(layer)] = unpacked(
            kept, n
        )
    return right


def hits_of(
    grid: Grid, tasks: Sequence[str], columns: Sequence[int | None]
) -> list[Floats]:
    """Return for each task the values of the samples in each column `[n, columns]`; none unless all are known.

    A column is a layer, or None for the model as shipped. A task whose items were not drawn one by
    one, such as words of sentences, has another error than its items give: it has no hits here.
    """
    right, hits_by_task = rights_of(grid), list[Floats]()
    for task in tasks:
        of_task = right.get(task, {})
        if not all(column in of_task for column in columns):
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
    tasks = [str(task) for task in grid.complete]
    if len(tasks) > 2:
        return error_of(
            np.array(
                [
                    grid.at(layer, task).value - grid.at(rival, task).value
                    for task in tasks
                ]
            )
        )
    if hits := hits_of(grid, tasks, (layer, rival)):
        return math.hypot(*(paired(one[:, 0], one[:, 1])[1] for one in hits)) / len(
            tasks
        )
    return math.hypot(grid.error(layer), grid.error(rival))


def shifts_of(grid: Grid) -> Iterator[Shift]:
    """Yield the shifts that a model's layers were scored under, where it is known which samples are right."""
    rows, right = grid.rows, rights_of(grid)
    rows = rows[rows["task"].isin(list(right))]
    for target, source in dict(
        zip(rows["task"], rows["shifted_from"], strict=True)
    ).items():
        of_target = right[target]
        of_source = right.get(source, {})
        shared = of_source.keys() & of_target.keys()
        layers = sorted(shared, key=lambda layer: (layer is None, layer))
        if len(layers) > 1 and layers[-1] is None:
            values = [
                np.stack([side[k] for k in layers], 1)
                for side in (of_source, of_target)
            ]
            yield Shift(source, target, tuple(layers), *values)
