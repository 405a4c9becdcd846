"""Scores on tasks: their average by depth, every layer on every task, and how metrics go with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from layerscope.reports.correlations import NAMES, Pairing
from layerscope.scores.scored import Scored
from layerscope.scores.statistics import STATISTICS
from layerscope.show.figures import style
from layerscope.show.figures.axes import layer_step, mark_layers, marked, ring

HEAT = LinearSegmentedColormap.from_list("gains", ("#b35806", "#f7f7f5", "#2166ac"))
"""Orange below its reference, blue above: told apart by the colour-blind."""
BEYOND = 95
"""Percentile of the distances at which the colours end."""
ROW = 0.13
"""Inches a row of a map or of bars is high."""
SHIPPED = (0, (4, 2))


def draw_averages(entries: Sequence[Scored], width: float) -> Any:
    """Return a figure of the average score by layer, of models of several depths by depth in percent."""
    shown = [(i, entry) for i, entry in enumerate(entries) if entry.average]
    alone = len(shown) == 1
    figure, axes = style.sheet(width, 1, 1, 2.2, _title(entries))
    axis, end, percent = axes[0], max(max(entry.layers) for entry in entries), _by_percent(entries)
    for i, entry in shown:
        how = style.look(i)
        average = entry.average
        x = np.array([_place(layer, entry, percent) for layer in average])
        values = np.array(list(average.values()))
        axis.plot(x, values, markevery=marked(values, i), **how)
        if math.isfinite(entry.shipped):
            axis.axhline(entry.shipped, color=how["color"], linestyle=SHIPPED, linewidth=0.8)
        if entry.best is not None:
            axis.plot(_place(entry.best, entry, percent), average[entry.best], **ring())
    mark_layers(axis, 100 if percent else end, most=8 if width > style.COLUMN_WIDTH else 5)
    axis.set_xlabel("depth (%)" if percent else "layer")
    axis.set_ylabel("average score")
    handles = [] if alone else [Line2D([], [], label=entry.name, **style.look(i)) for i, entry in shown]
    grey = "#777777"
    handles.append(Line2D([], [], label="best layer", **ring()))
    if any(math.isfinite(entry.shipped) for _, entry in shown):
        handles.append(Line2D([], [], color=grey, linestyle=SHIPPED, linewidth=0.8, label="model as shipped"))
    style.explain(figure, handles)
    return style.finish(figure)


def draw_tasks(entries: Sequence[Scored], width: float) -> Any:
    """Return a figure of maps of one scale, layer × task: each task's scores less those of its reference."""
    columns = 1 if style.is_narrow(width) else min(2, len(entries))
    rows = max(len(entry.tasks) for entry in entries)
    figure, axes = style.sheet(width, len(entries), columns, rows * ROW + 0.7, _title(entries))
    gains = [_gains(entry) for entry in entries]
    known = np.abs(np.concatenate([g[np.isfinite(g)] for g in gains]))
    end = (float(np.percentile(known, BEYOND)) if len(known) else 0.0) or float(known.max(initial=0.0)) or 1.0
    same = all(entry.tasks == entries[0].tasks for entry in entries)
    for i, (axis, entry, gain) in enumerate(zip(axes, entries, gains, strict=True)):
        image = axis.pcolormesh(gain.T, cmap=HEAT, vmin=-end, vmax=end, edgecolors="face", linewidth=0.5)
        _mark(axis, entry, named=i % columns == 0 or not same, figure=figure)
        if len(entries) > 1:
            axis.set_title(entry.name)
    style.label_below(axes, columns, "layer")
    _bar(figure, axes, image, entries)
    return style.finish(figure)


def draw_correlations(pairings: Sequence[Pairing], names: Sequence[str], width: float) -> Any:
    """Return a figure of how each metric of a run goes with the average score: a panel for each statistic."""
    found = [name for name in STATISTICS if name in pairings[0].metrics[0].found]
    titles = list(dict.fromkeys(metric.title for pairing in pairings for metric in pairing.metrics))
    columns = 1 if style.is_narrow(width) else 2
    high = len(titles) * max(ROW, 0.07 * (len(pairings) + 1)) + 0.5
    model = f"{names[pairings[0].scored]}: " if len(pairings) == 1 else ""
    figure, axes = style.sheet(width, len(found), columns, high, f"{model}metrics by layer and the average score")
    for i, (axis, name) in enumerate(zip(axes, found, strict=True)):
        for j, pairing in enumerate(pairings):
            _bars(axis, pairing, name, titles, (j, len(pairings)))
        axis.set_title(NAMES[name])
        axis.set_xlim(0 if name == "dcor" else -1.05, 1.05)
        axis.axvline(0, color=style.DARK, linewidth=0.6)
        axis.set_ylim(len(titles) - 0.5, -0.5)
        there = i % columns == 0
        axis.set_yticks(range(len(titles)), [style.fitted(figure, t, 0.3, 7) if there else "" for t in titles])
        axis.tick_params(axis="y", length=0)
        axis.grid(visible=False, axis="y")
    handles: list[Any] = []
    if len(pairings) > 1:
        handles = [Patch(color=style.look(i)["color"], label=names[p.scored]) for i, p in enumerate(pairings)]
    tasks = max(metric.tasks for pairing in pairings for metric in pairing.metrics)
    what = "layers" if tasks == 1 else f"{tasks} tasks"
    handles.append(Line2D([], [], color=style.DARK, linewidth=0.8, label=f"95 %, {what} resampled"))
    style.explain(figure, handles)
    return style.finish(figure)


def _by_percent(entries: Sequence[Scored]) -> bool:
    return len({max(entry.layers) for entry in entries}) > 1


def _place(layer: int, entry: Scored, percent: bool) -> float:
    return 100 * layer / max(1, *entry.layers) if percent else float(layer)


def _title(entries: Sequence[Scored]) -> str:
    tasks = list(dict.fromkeys(task for entry in entries for task in entry.tasks))
    on = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    return f"{entries[0].name} on {on}" if len(entries) == 1 else on


def _gains(entry: Scored) -> np.ndarray[Any, Any]:
    """Return `[layers, tasks]` scores less those of each task's reference."""
    reference = np.array([entry.reference(task) for task in entry.tasks])
    return np.asarray(entry.grid.scores.to_numpy(dtype=np.float64) - reference)


def _mark(axis: Any, entry: Scored, named: bool, figure: Any) -> None:
    """Name tasks and layers, and ring the best layer of each task."""
    axis.grid(visible=False)
    for side in axis.spines.values():
        side.set_visible(False)
    axis.set_ylim(len(entry.tasks), 0)
    names = [style.fitted(figure, task, 0.28, 6) if named else "" for task in entry.tasks]
    axis.set_yticks(np.arange(len(entry.tasks)) + 0.5, names, fontsize=6)
    step = layer_step(max(1, entry.layers[-1]), 6)
    places = [i for i, layer in enumerate(entry.layers) if layer % step == 0]
    axis.set_xticks([i + 0.5 for i in places], [str(entry.layers[i]) for i in places])
    axis.tick_params(length=0)
    best = [(i, entry.best_on(task)) for i, task in enumerate(entry.tasks)]
    x = [entry.layers.index(layer) + 0.5 for _, layer in best if layer is not None]
    y = [i + 0.5 for i, layer in best if layer is not None]
    for mark in ({"mec": "white", "mew": 1.8}, {}):  # white below, so that it is seen on the darkest cells
        axis.plot(x, y, **ring() | {"markersize": 4} | mark)


def _bar(figure: Any, axes: list[Any], image: Any, entries: Sequence[Scored]) -> None:
    """Draw below the maps what the colours stand for."""
    width = figure.get_figwidth()
    figure.set_figheight(figure.get_figheight() + 0.5)
    share = 0.5 / figure.get_figheight()
    bar = figure.colorbar(
        image, ax=axes, location="bottom", fraction=share / 2, pad=0.03, shrink=0.6, aspect=6 * width, extend="both"
    )
    bar.outline.set_visible(False)
    compared = list(dict.fromkeys(entry.compared_with for entry in entries))
    share = 0.65 if style.is_narrow(width) else 0.8
    lines = (f"score less that of {' or '.join(compared)}", "○ best layer of a task")
    bar.set_label("\n".join(style.fitted(figure, line, share, 7.5) for line in lines))


def _bars(axis: Any, pairing: Pairing, name: str, titles: list[str], which: tuple[int, int]) -> None:
    number, of = which
    height = 0.7 / of
    rows = [titles.index(metric.title) - 0.35 + (number + 0.5) * height for metric in pairing.metrics]
    found = [metric.found[name] for metric in pairing.metrics]
    axis.barh(rows, [each.estimate for each in found], height=height, color=style.look(number)["color"], alpha=0.75)
    for row, each in zip(rows, found, strict=True):
        axis.plot([each.low, each.high], [row, row], color=style.DARK, linewidth=0.8)
