"""Probes of one data set that are judged on another: which samples every layer gets right on both."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.probes.scores import error_of
from layerscope.scores.grids import Grid
from layerscope.scores.naming import Unit
from layerscope.scores.probe_results import right_of

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
    """Return by task and layer, None for the model as shipped, which samples are right, 1, or wrong, 0, where known."""
    rows = grid.rows[grid.rows["right"].notna() & grid.rows["kind"].isin(("layer", "baseline"))]
    right: dict[str, dict[int | None, Floats]] = {}
    for task, layer, kept, n in zip(
        rows["task"], rows["layer"], rows["right"], rows["n"], strict=True
    ):
        right.setdefault(task, {})[None if pd.isna(layer) else int(layer)] = right_of(
            kept, n
        ).astype(float)
    return right


def error_of_gain(grid: Grid, layer: int, rival: int | None) -> float:
    """Return the standard error of what a layer scores more than another, None for the model as shipped.

    Of three tasks or more it is paired over tasks, else over the samples of each where these are
    known; else NaN.
    """
    tasks, right = [str(task) for task in grid.complete], rights_of(grid)
    if len(tasks) > 2:
        return error_of(
            np.array([grid.at(layer, task).value - grid.at(rival, task).value for task in tasks])
        )
    known = [right.get(task, {}) for task in tasks]
    if not all(layer in own and rival in own for own in known):
        return math.nan
    return math.hypot(*(paired(own[layer], own[rival])[1] for own in known)) / len(tasks)


def shifts_of(grid: Grid) -> Iterator[Shift]:
    """Yield the shifts that a model's layers were scored under, where it is known which samples are right."""
    rows, right = grid.rows, rights_of(grid)
    rows = rows[rows["task"].isin(list(right))]
    for target, source in dict(zip(rows["task"], rows["shifted_from"], strict=True)).items():
        there, here = right[target], right.get(source, {})
        layers = sorted(here.keys() & there.keys(), key=lambda layer: (layer is None, layer))
        if len(layers) > 1 and layers[-1] is None:
            values = (np.stack([found[layer] for layer in layers], 1) for found in (here, there))
            yield Shift(source, target, tuple(layers), *values)
