"""The plots and tables of scores: average by layer, every layer on every task, how metrics of a run go with them."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from layerscope.core.errors import count
from layerscope.scores.grids import Grid
from layerscope.scores.naming import SHIPPED, decimal, signed
from layerscope.scores.pairing import Related
from layerscope.show.document import Cell, Column, Row, Section, Table
from layerscope.show.numbers import number
from layerscope.show.plots import Axis, Bars, Chart, HeatMap, Meaning, Series

EVALUATED = Meaning(
    "The main score of each task with the vectors of every layer, and its average over the tasks.",
    "High: the layer serves these tasks well.",
    "Skean et al. 2025, Layer by Layer, figure 1",
)
LEAD = (
    "Averages run over the tasks that every layer has; layer 0, the embedding output, is shown and is not a "
    "candidate for "
    "the best one. A layer chosen on scores looks better on them than it is: expect less elsewhere."
)
NAMES = {
    "spearman": "Spearman's ρ", "kendall": "Kendall's τ", "pearson": "Pearson's r", "dcor": "distance correlation",
}  # fmt: skip
BEYOND = 95
"""Percentile of the distances at which the colours end."""
TASKS = "resample {}, layers held fixed; with few of them they say little."
LAYERS = "resample layers, which are alike: they are narrower than the truth."


def section(
    entry: Grid,
    known: Sequence[Grid],
    related: Sequence[Sequence[Related]],
    tables: Sequence[Table],
) -> Section:
    """Return what a page has of one series of scores; the colours of its map are those of all that are `known`."""
    plots: list[Chart | Bars | HeatMap] = [average_chart(entry)] if len(entry.average) else []
    plots += [interval for metrics in related for interval in _intervals(metrics)]
    plots.append(_map(entry, known))
    plots += [scatter for metrics in related for scatter in _scatters(metrics, entry)]
    scale = "In percent." if entry.unit.percent else "In the units of the tasks' own main scores."
    return Section(
        "scores",
        "Scores on tasks",
        f"{scale} {LEAD}",
        (*plots, *tables, *map(correlation_table, related)),
    )


def average_chart(entry: Grid) -> Chart:
    """Return the average score by layer, and that of the model as shipped across it."""
    average, tasks, depth, unit = (
        entry.average,
        entry.complete.shape[1],
        max(1, entry.depth),
        entry.unit,
    )
    layers, best = list(average.index), entry.best
    line = Series(
        "",
        tuple(map(float, layers)),
        tuple(average),
        tuple(f"layer {layer}: {unit.text(value)}" for layer, value in average.items()),
        marked=() if best is None else (layers.index(best),),
        note=f"mean of {tasks:,} tasks" if tasks > 1 else "1 task",
    )
    known = math.isfinite(entry.shipped)
    text = f"as shipped: {unit.text(entry.shipped)}"
    shipped = Series(SHIPPED, (0.0, float(depth)), (entry.shipped,) * 2, (text, text), mark="level")
    return Chart(
        title="Average score by layer",
        summary="" if best is None else f"{unit.text(average[best])} at layer {best}, the best",
        about=EVALUATED,
        unit="%" if unit.percent else "",
        name="scores",
        x=Axis("layer", whole=True, depth=depth),
        y=Axis("", scale=unit.scale),
        series=(line, *([shipped] if known else [])),
        overlaid=True,
        marked="the best layer",
    )


def _map(entry: Grid, known: Sequence[Grid]) -> HeatMap:
    """Return the score of every layer on every task, as the difference from one reference per task."""
    best, gains, unit = [entry.best_on(task) for task in entry.tasks], entry.gains, entry.unit
    apart = np.concatenate([np.abs(other.gains).ravel() for other in known])
    apart = apart[np.isfinite(apart)]
    end = (
        float(np.percentile(apart, BEYOND) if len(apart) else 0.0)
        or float(apart.max(initial=0.0))
        or 1.0
    )
    compared = dict.fromkeys(other.compared_with for other in known)
    texts = tuple(
        tuple(
            _gain(entry, task, layer, gain) for layer, gain in zip(entry.layers, line, strict=True)
        )
        for task, line in zip(entry.tasks, gains, strict=True)
    )
    return HeatMap(
        title="Every layer on every task",
        summary="A heat map: the score of every layer on every task, as the difference from one reference per task.",
        about=EVALUATED,
        note=f"Colour: score of a layer less that of {' or '.join(compared)}, on the same task; beyond the ends of the "
        "scale lies one cell in twenty. ○ the best layer.",
        name="scores_by_task",
        corner="task",
        rows=tuple(entry.tasks),
        columns=tuple(map(str, entry.layers)),
        values=tuple(tuple(map(float, unit.scale * line)) for line in gains),
        low=-unit.scale * end,
        high=unit.scale * end,
        down="task",
        across="layer",
        rings=tuple(None if layer is None else entry.layers.index(layer) for layer in best),
        texts=texts,
        shown=tuple(
            tuple(decimal(unit.scale * gain, 1, sign=True) for gain in line) for line in gains
        ),
        diverging=True,
        depth=max(1, entry.depth),
    )


def _gain(entry: Grid, task: str, layer: int, gain: float) -> str:
    score = entry.at(layer, task).value
    if math.isnan(score):
        return f"{task}, layer {layer}: no score"
    difference = f"{entry.unit.difference(gain)} against {entry.compared_with}"
    return f"{task}, layer {layer}: {entry.unit.text(score)}, {difference}"


def _intervals(metrics: Sequence[Related]) -> Iterator[Bars]:
    """Yield a plot for each statistic: how the metrics of a run go with the average score."""
    for name in metrics[0].found:
        found = [metric.found[name] for metric in metrics]
        yield Bars(
            title="Metrics and scores",
            summary=f"Bars: the correlation of each metric by layer with the average score. {resampled(metrics)}",
            choice=NAMES[name],
            note=resampled(metrics),
            name=f"correlations_{name}",
            sheet="correlations",
            x=Axis(NAMES[name], range=(0 if name == "dcor" else -1.05, 1.05)),
            rows=tuple(metric.title for metric in metrics),
            values=tuple(each.estimate for each in found),
            low=tuple(each.low for each in found),
            high=tuple(each.high for each in found),
        )


def resampled(metrics: Sequence[Related]) -> str:
    """Say over how many layers correlations run, and what their intervals resample."""
    layers, tasks = (
        max(getattr(metric, name) for metric in metrics) for name in ("layers", "tasks")
    )
    how = LAYERS if tasks == 1 else TASKS.format(count(tasks, "task"))
    return f"{count(layers, 'layer')} (layer 0 left out). Intervals (95 %) {how}"


def _scatters(metrics: Sequence[Related], entry: Grid) -> Iterator[Chart]:
    """Yield a plot for each metric: a point for each layer, with its number."""
    average, unit = entry.average, entry.unit
    for metric in metrics:
        layers = [layer for layer in metric.values if layer in average]
        yield Chart(
            title="A metric against the average score",
            summary="Points: a layer each, numbered; a metric and the average score.",
            choice=metric.title,
            x=Axis(metric.title),
            y=Axis(f"average score{' (%)' * unit.percent}", scale=unit.scale),
            series=(
                Series(
                    "",
                    tuple(metric.values[layer] for layer in layers),
                    tuple(average[layer] for layer in layers),
                    tuple(
                        f"layer {layer}: {metric.title} {number(metric.values[layer], 4)}, score "
                        f"{unit.text(average[layer])}"
                        for layer in layers
                    ),
                    labels=tuple(map(str, layers)),
                    mark="points",
                ),
            ),
        )


def correlation_table(metrics: Sequence[Related]) -> Table:
    """Return how each metric of a run goes with the average score."""
    names = list(metrics[0].found)
    rows = [
        Row(
            (
                Cell(metric.title),
                *(_correlated(metric.found[name]) for name in names),
                signed(metric.by_task),
            )
        )
        for metric in metrics
    ]
    legend = (
        f"Each metric of the run by layer, with the average score. {resampled(metrics)} By task: the tasks' own "
        f"{NAMES[names[0]]}, averaged. Distance correlation has no sign and is above 0 for noise. Among many "
        f"metrics, some correlate by chance."
    )
    titles = [Column(NAMES[name], unit="95 % interval") for name in names]
    titles.append(Column("by task", unit=NAMES[names[0]]))
    return Table(
        "Metrics of the run and scores",
        (Column("metric", "left"), *titles),
        tuple(rows),
        (legend,),
        name="correlations",
    )


def _correlated(found: Any) -> Cell:
    cell = signed(found.estimate)
    if math.isnan(found.estimate) or math.isnan(found.low):
        return cell
    between = f"({decimal(found.low, 2, sign=True)} … {decimal(found.high, 2, sign=True)})"
    return Cell(cell.text, between, cell.value, more=(("low", found.low), ("high", found.high)))
