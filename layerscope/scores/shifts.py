"""Probes of one data set that are judged on another: which samples every layer gets right on both."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

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

    @property
    def best(self) -> tuple[int, int]:
        """Columns of the highest accuracy on source and target, the shallowest of several; never layer 0."""
        kept = [i for i, layer in enumerate(self.layers) if layer]
        one, two = (kept[int(values[:, kept].mean(0).argmax())] for values in (self.on_source, self.on_target))
        return one, two

    def in_words(self, unit: Unit) -> str:
        """Return which layers are best on source and target, and what the one of the target wins and loses."""
        one, two = self.best
        here, there = unit.text(self.on_source[:, one].mean()), unit.text(self.on_target[:, two].mean())
        if one == two:
            return f"Layer {self.layers[one]} is best on source and target of {self.target}: {here} and {there}"
        gain, loss = (unit.difference(*paired(values, two, one)) for values in (self.on_target, self.on_source))
        return (
            f"Layer {self.layers[two]} is best on the target of {self.target}: {there}; against layer "
            f"{self.layers[one]}, the best on the source, {gain} there and {loss} on the source"
        )


def paired(values: Floats, one: int, two: int) -> tuple[float, float]:
    """Return the mean difference of two columns, and its standard error over samples."""
    apart = values[:, one] - values[:, two]
    return float(apart.mean()), float(apart.std(ddof=1)) / math.sqrt(len(apart))


def shifts_of(grid: Grid) -> Iterator[Shift]:
    """Yield the shifts that a model's layers were scored under, where it is known which samples are right."""
    rows = grid.rows[grid.rows["right"].notna() & (grid.rows["kind"] != "mix")]
    right = {task: _right(own) for task, own in rows.groupby("task")}
    for target, source in (
        rows.dropna(subset="shifted_from").groupby("task", sort=False)["shifted_from"].first().items()
    ):
        there, here = right[target], right.get(source, {})
        layers = [*sorted(layer for layer in there if layer is not None and layer in here), None]
        if len(layers) > 1 and None in there and None in here:
            values = (np.stack([found[layer] for layer in layers], 1) for found in (here, there))
            yield Shift(str(source), str(target), tuple(layers), *values)


def _right(rows: pd.DataFrame) -> dict[int | None, Floats]:
    """Return which samples of a task are right, by layer; None is the model as shipped."""
    kept = zip(rows["kind"], rows["layer"], rows["right"], rows["n"], strict=True)
    return {int(layer) if kind == "layer" else None: right_of(right, n).astype(float) for kind, layer, right, n in kept}
