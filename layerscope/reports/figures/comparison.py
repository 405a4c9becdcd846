"""Comparisons: layers of one run by layers of another, differences by depth, layers by checkpoints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.lines import Line2D

from layerscope.comparison.comparison import Comparison
from layerscope.comparison.findings import (
    Pair,
    as_values,
    checkpoints,
    differences,
    maps,
    pairs,
    scale_of,
    similarity_name,
)
from layerscope.runs.registry import about
from layerscope.runs.titles import titled, unit_apart
from layerscope.show.figures import style
from layerscope.show.figures.axes import layer_step, mark_layers
from layerscope.show.figures.charts import BAND
from layerscope.show.figures.maps import EVEN as HEAT, PRINTED, SMALLEST
from layerscope.show.plain import plain

MOST = 6
"""So many pairs have a panel; the page has all."""


def draw_rectangles(comparisons: Sequence[Comparison], metric: str, width: float) -> Any:
    """Return a figure of the similarity of every layer of one run with every one of another, a panel for each pair."""
    known = [pair for c in comparisons if metric in c.similarities for pair in pairs(c)][:MOST]
    columns = min(2, len(known))
    side = (width - 0.55) / 2 - 0.3 if columns == 2 else min(width - 1.25, 3.9)
    figure, axes = style.sheet(width, len(known), columns, side + 0.55, "")
    squares = [pair.square(metric) for pair in known]
    lowest = min([0.0, *(float(np.nanmin(as_values(s))) for s in squares if np.isfinite(as_values(s)).any())])
    for axis, pair, square in zip(axes, known, squares, strict=True):
        image = _map(axis, as_values(square), lowest, 1.0, 72 * side / max(square.shape))
        axis.set_aspect("equal")
        axis.set_ylabel(style.fitted(figure, f"layer of {plain(pair.a.name)}", 0.8 * side / width, 7.5))
        axis.set_xlabel(style.fitted(figure, f"layer of {plain(pair.b.name)}", 0.9 * side / width, 7.5))
        _mark(axis, list(map(str, square.columns)), list(map(str, square.index)), max(5, int(side * 5)))
    _bar(figure, axes, image, similarity_name(metric))
    return style.finish(figure)


def draw_differences(comparisons: Sequence[Comparison], width: float) -> Any:
    """Return a figure of small multiples: each metric's difference by depth, a line for each pair."""
    known = [pair for comparison in comparisons for pair in pairs(comparison)]
    rows = [differences(pair) for pair in known]
    keys = list(dict.fromkeys(key for found in rows for key in zip(found["metric"], found["variant"], strict=True)))
    columns = min(2 if style.is_narrow(width) else 3, len(keys))
    figure, axes = style.sheet(width, len(keys), columns, 1.45 if columns == 3 else 1.3, "")
    for axis, (metric, variant) in zip(axes, keys, strict=True):
        for number, (pair, found) in enumerate(zip(known, rows, strict=True)):
            same = found["variant"].isna() if variant is None else found["variant"] == variant
            _line(axis, pair, found[(found["metric"] == metric) & same], number)
        axis.axhline(0.0, color="#888888", linewidth=0.6)
        axis.set_title(titled(metric))
        axis.set_ylabel(unit_apart(metric))
        mark_layers(axis, 100, most=8 if width / columns > 2 else 5)
    style.label_below(axes, columns, "depth (%)")
    names = [f"{plain(pair.b.name)} less {plain(pair.a.name)}" for pair in known]
    style.explain(figure, [Line2D([], [], label=name, **style.look(i)) for i, name in enumerate(names)])
    return style.finish(figure)


def draw_checkpoints(comparison: Comparison, width: float) -> Any:
    """Return a figure of maps of layers by checkpoints: similarities, then each metric on a scale of its own."""
    known = [
        (metric, title, values) for metric, title, values in maps(comparison) if np.isfinite(values).any(axis=None)
    ]
    columns = 1 if style.is_narrow(width) else 2
    figure, axes = style.sheet(width, len(known), columns, 1.9, "")
    names = dict(zip([member.name for member in comparison.runs], checkpoints(comparison), strict=True))
    for axis, (metric, title, values) in zip(axes, known, strict=True):
        numbers = scale_of(metric) * as_values(values)
        image = _map(axis, numbers, float(np.nanmin(numbers)), float(np.nanmax(numbers)), 0.0)
        axis.set_title(title)
        axis.set_ylabel("layer")
        _mark(axis, [_cut(names[name]) for name in values.columns], list(map(str, values.index)), 6)
        bar = figure.colorbar(image, ax=axis, fraction=0.06, pad=0.02)
        bar.outline.set_visible(False)
        bar.set_label(about(metric).unit)
    style.label_below(axes, columns, "checkpoint")
    return style.finish(figure)


def _line(axis: Any, pair: Pair, rows: Any, number: int) -> None:
    """Draw a pair's difference by percent of depth; the layer after the norm lies at the end."""
    rows = rows[rows["value"].notna()]
    if not len(rows):
        return
    short = pair.a if pair.a.depth <= pair.b.depth else pair.b
    layers = rows["layer" if short is pair.a else "layer_b"].to_numpy(dtype=np.float64)
    scale = scale_of(str(rows["metric"].iloc[0]))
    values, band = scale * rows["value"].to_numpy(), scale * np.nan_to_num(rows["stderr"].to_numpy())
    x, keep = 100 * layers / short.depth, np.diff(layers, prepend=-1.0) > 0
    look = style.look(number)
    axis.plot(x[keep], values[keep], **look)
    axis.fill_between(
        x[keep], (values - band)[keep], (values + band)[keep], color=look["color"], alpha=BAND, linewidth=0
    )
    axis.plot(x[~keep], values[~keep], marker="D", markersize=4, mfc="white", mec=look["color"], linestyle="none")


def _map(axis: Any, values: Any, low: float, high: float, cell: float) -> Any:
    """Draw the cells, each so many points wide, with their values where these fit, and return what has the colours."""
    high = high if high > low else low + 1.0
    image = axis.pcolormesh(values, cmap=HEAT, vmin=low, vmax=high, edgecolors="face", linewidth=0.5)
    axis.grid(visible=False)
    for side in axis.spines.values():
        side.set_visible(False)
    size = min(6.5, cell / 2.5)
    if max(values.shape) <= PRINTED and size >= SMALLEST:
        for (i, j), value in np.ndenumerate(values):
            if math.isfinite(value):
                color = "white" if (value - low) / (high - low) < 0.55 else "black"
                text = f"{round(float(value), 2) + 0.0:.2f}"
                axis.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=size, color=color)
    return image


def _mark(axis: Any, across: list[str], down: list[str], most: int) -> None:
    for names, ticks in ((across, axis.set_xticks), (down, axis.set_yticks)):
        step = layer_step(max(1, len(names) - 1), most)
        places = [i for i in range(0, len(names), step) if i + step <= len(names)]
        places = sorted({*places, len(names) - 1})
        ticks([i + 0.5 for i in places], [names[i] for i in places])
    axis.tick_params(length=0)


def _bar(figure: Any, axes: list[Any], image: Any, title: str) -> None:
    if len(axes) == 1:
        bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, aspect=30)
    else:
        figure.set_figheight(figure.get_figheight() + 0.5)
        bar = figure.colorbar(image, ax=axes, location="bottom", fraction=0.05, pad=0.04, shrink=0.6, aspect=40)
    bar.outline.set_visible(False)
    bar.set_label(title)


def _cut(name: str) -> str:
    return name if len(name) <= 10 else f"{name[:4]}…{name[-5:]}"
