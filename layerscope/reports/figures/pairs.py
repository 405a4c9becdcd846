"""Heat maps of a metric between every two layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from layerscope.reports.figures import style
from layerscope.reports.figures.lines import layer_step
from layerscope.reports.figures.member import Member, sheet_title
from layerscope.runs.curves import Values
from layerscope.runs.registry import about
from layerscope.show.plain import plain, pooling_name

HEAT = "cividis"
"""Its brightness rises evenly: the same map in grey."""
PRINTED = 13
"""Maps of at most this many layers print their values, where they fit."""
SMALLEST = 5.0
"""Points: the smallest values that are printed."""


def draw_pairs(members: list[Member], metric: str, width: float) -> Any:
    """Return a figure of heat maps of one scale: a metric between every two layers, a map for each run and pooling."""
    maps = [
        (member, pooling, _square(member, metric, pooling))
        for member in members
        for pooling in _poolings(member, metric)
    ]
    columns = min(2, len(maps))
    side = (width - 0.55) / 2 - 0.3 if columns == 2 else min(width - 1.25, 3.9)
    figure, axes = style.sheet(width, len(maps), columns, side + 0.55, sheet_title(members))
    lowest = min([0.0, *(float(s.min(axis=None)) for _, _, s in maps if s.notna().any(axis=None))])
    several = len({pooling for _, pooling, _ in maps}) > 1
    for axis, (member, pooling, square) in zip(axes, maps, strict=True):
        image = _map(axis, square.to_numpy(), lowest, 72 * side / len(square))
        axis.set_title(_name(member, pooling, several))
        _mark(axis, [str(name) for name in square.index], most=max(5, int(side * 5)))
    style.label_below(axes, columns, "layer")
    for axis in axes[::columns]:
        axis.set_ylabel("layer")
    _bar(figure, axes, image, metric, {curve.variant for m in members for curve in m.of(metric)})
    return style.finish(figure)


def _bar(figure: Any, axes: list[Any], image: Any, metric: str, variants: set[str | None]) -> None:
    """Draw what the colours stand for: beside a single map, below several."""
    width = figure.get_figwidth()
    if len(axes) == 1:
        bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, aspect=30)
    else:
        figure.set_figheight(figure.get_figheight() + 0.5)
        bar = figure.colorbar(image, ax=axes, location="bottom", fraction=0.05, pad=0.04, shrink=0.6, aspect=6 * width)
    bar.outline.set_visible(False)
    variant = variants.pop() if len(variants) == 1 else None
    bar.set_label(about(metric).title + (f" ({plain(variant).replace(',', ', ')})" if variant else ""))


def _poolings(member: Member, metric: str) -> list[str | None]:
    poolings = member.of(metric) if member.run.has_states else []  # a history has no square
    return list(dict.fromkeys(curve.pooling for curve in poolings))


def _square(member: Member, metric: str, pooling: str | None) -> pd.DataFrame:
    return pd.DataFrame(member.run.metric(metric, pooling=pooling))


def _name(member: Member, pooling: str | None, several: bool) -> str:
    """Return what a map is about: its pooling; of several runs the run's name, and below it one of several poolings."""
    if member.alone:
        return pooling_name(pooling)
    return plain(member.name) + (f"\n{pooling_name(pooling)}" if several else "")


def _map(axis: Any, values: Values, lowest: float, cell: float) -> Any:
    """Draw the cells, each so many points wide, with their values where these fit, and return what has the colours."""
    image = axis.pcolormesh(
        values, cmap=HEAT, vmin=lowest, vmax=1.0, edgecolors="face", linewidth=0.5
    )  # edges: no seams in PDF
    axis.set_aspect("equal")
    axis.grid(visible=False)
    for side in axis.spines.values():
        side.set_visible(False)
    size = min(6.5, cell / 2.5)
    if len(values) <= PRINTED and size >= SMALLEST:
        for (i, j), value in np.ndenumerate(values):
            if math.isfinite(value):
                dark = (value - lowest) / (1.0 - lowest) < 0.55
                text = f"{round(float(value), 2) + 0.0:.2f}"  # + 0.0: no minus before nothing
                text = text.replace("1.00", "1.0").replace("0.", ".", 1)
                color = "white" if dark else "black"
                axis.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=size, color=color)
    return image


def _mark(axis: Any, names: list[str], most: int) -> None:
    """Name layers on both axes, at most about so many; what follows the final norm has the last place."""
    numbered = [i for i, name in enumerate(names) if name.isdigit()]
    step = layer_step(numbered[-1], most)
    places = [i for i in numbered if i % step == 0]
    if len(names) > len(numbered):
        places = [i for i in places if i + step <= len(names)] + [len(names) - 1]
    axis.set_xticks([i + 0.5 for i in places], [names[i] for i in places])
    axis.set_yticks([i + 0.5 for i in places], [names[i] for i in places])
    axis.tick_params(length=0)
    if len(names) > len(numbered):
        axis.get_xticklabels()[-1].set_rotation(90)
