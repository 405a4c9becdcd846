"""The plots of scores: average by layer, every layer on every task."""

import math

import numpy as np

from layerscope.scores.grids import Grid
from layerscope.scores.naming import SHIPPED, decimal
from layerscope.show.plots import Axis, Chart, HeatMap, Meaning, Series

EVALUATED = Meaning(
    "The main score of each task with the vectors of every layer, and its average over the tasks.",
    "High: the layer serves these tasks well.",
    "Skean et al. 2025, Layer by Layer, figure 1",
)
BEYOND = 95
"""Percentile of the distances at which the colours end."""


def average_chart(grid: Grid) -> Chart:
    """Return the average score by layer, the best layer marked, and that of the model as shipped across it."""
    average = grid.average
    tasks = grid.complete.shape[1]
    unit = grid.unit
    frame = average.rename("score").rename_axis("layer").reset_index()
    frame["chosen"] = frame["layer"] == grid.best
    note = f"mean of {tasks:,} tasks" if tasks > 1 else "1 task"
    series = [Series.of(frame, "layer", "score", note=note)]
    depth = max(1, grid.depth)
    if math.isfinite(grid.shipped):
        text = f"as shipped: {unit.text(grid.shipped)}"
        values = (grid.shipped,) * 2
        series.append(Series(SHIPPED, (0.0, float(depth)), values, note=text))
    summary = ""
    if grid.best is not None:
        summary = f"{unit.text(average[grid.best])} at layer {grid.best}, the best"
    return Chart(
        title="Average score by layer",
        summary=summary,
        about=EVALUATED,
        unit="%" if unit.percent else "",
        name="scores",
        x=Axis("layer", whole=True, depth=depth),
        y=Axis("", scale=unit.scale),
        series=tuple(series),
        overlaid=True,
        marked="the best layer",
    )


def task_map(grid: Grid) -> HeatMap:
    """Return the score of every layer on every task, less one reference per task.

    The reference is the model as shipped, else the deepest layer with a score. Colours end where
    nineteen in twenty cells lie, so that one far cell does not make all others alike.
    """
    scores = grid.scores
    deepest = scores.ffill().iloc[-1]
    reference = grid.baseline.reindex(scores.columns).fillna(deepest)
    gains = grid.unit.scale * (scores - reference).T
    # 1 where no layer differs
    end = float(np.nanpercentile(np.abs(gains), BEYOND)) or 1.0
    rings = list[int | None]()
    texts = []
    for task, line in gains.iterrows():
        best = grid.best_on(task)
        rings.append(None if best is None else grid.layers.index(best))
        texts.append(tuple(decimal(gain, 1, sign=True) for gain in line))
    return HeatMap.of(
        gains,
        title="Every layer on every task",
        summary="A heat map: the score of every layer on every task, as the difference from one reference per task.",
        about=EVALUATED,
        note=f"Colour: score of a layer less that of the model {SHIPPED}, else of the deepest layer with a score, on "
        "the same task; beyond the ends of the scale lies one cell in twenty. ○ the best layer.",
        name="scores_by_task",
        low=-end,
        high=end,
        down="task",
        across="layer",
        rings=tuple(rings),
        shown=tuple(texts),
        diverging=True,
    )
