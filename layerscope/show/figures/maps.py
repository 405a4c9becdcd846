"""Heat maps, box plots and bars in figures, a panel for each result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from layerscope.show.figures import style
from layerscope.show.figures.axes import Values, mark_layers, name_columns, ring
from layerscope.show.figures.charts import Owned
from layerscope.show.plain import plain
from layerscope.show.plots import Bars, Boxes, HeatMap, ends

EVEN = "cividis"
"""Its brightness rises evenly: the same map in grey."""
AROUND = LinearSegmentedColormap.from_list("around", ("#b35806", "#f7f7f5", "#2166ac"))
"""Orange below, blue above: told apart by the colour-blind."""
PRINTED = 13
"""Maps of at most this many rows and columns print their values, where they fit."""
SMALLEST = 5.0
"""Points: the smallest values that are printed."""
ROW = 0.13
"""Inches of a row that has a name."""
LIGHT = 0.35


def draw_maps(owned: Sequence[Owned], title: str, width: float) -> Any:
    """Return a figure of heat maps of one scale, a map for each result and choice."""
    parts: list[HeatMap] = [one.plot for one in owned]
    if len({part.title for part in parts}) > 1:
        return _draw_sheet(parts, title, width)
    first = parts[0]
    columns = min(2, len(parts)) if first.square else style.panel_columns(width, len(parts))
    side = (width - 0.55) / columns - (0.3 if columns == 2 else 0.7)
    side = min(side, 3.9) if columns == 1 else side
    tall = max(len(part.rows) for part in parts)
    height = side + 0.55 if first.square else tall * ROW + 0.7 if _named(first) else 1.9
    figure, axes = style.sheet(width, len(parts), columns, height, title)
    low, high = _ends(parts)
    norm = LogNorm(low, high) if first.log and low > 0 else Normalize(low, high)
    colors: Any = AROUND if first.diverging else f"{EVEN}{'_r' if first.reversed else ''}"
    same = all(part.rows == first.rows for part in parts)
    for i, (axis, one) in enumerate(zip(axes, owned, strict=True)):
        cell = 72 * side / max(len(one.plot.rows), len(one.plot.columns)) if first.square else 0.0
        image = _map(axis, one.plot, norm, colors, cell)
        axis.set_title(_name(one, parts))
        _mark(figure, axis, one.plot, side, first_column=i % columns == 0 or not same)
    if len({(part.across, part.down) for part in parts}) == 1:
        style.label_below(axes, columns, style.fitted(figure, first.across, 0.9 / columns, 7.5))
        for axis in axes[::columns]:
            axis.set_ylabel("" if _named(first) else style.fitted(figure, first.down, 0.8 * side / width, 7.5))
    else:
        for axis, part in zip(axes, parts, strict=True):
            axis.set_xlabel(style.fitted(figure, part.across, 0.9 * side / width, 7.5))
            axis.set_ylabel(style.fitted(figure, part.down, 0.8 * side / width, 7.5))
    _bar(figure, axes, image, first)
    return style.finish(figure)


def _draw_sheet(parts: Sequence[HeatMap], title: str, width: float) -> Any:
    """Return a figure of maps of several kinds, each on a scale of its own."""
    columns = 1 if style.is_narrow(width) else 2
    figure, axes = style.sheet(width, len(parts), columns, 1.9, title)
    for axis, part in zip(axes, parts, strict=True):
        low, high = ends([part])
        norm = LogNorm(low, high) if part.log and low > 0 else Normalize(low, high)
        image = _map(axis, part, norm, f"{EVEN}{'_r' if part.reversed else ''}", 0.0)
        axis.set_title(part.title + (f" ({part.variant})" if part.variant else ""))
        axis.set_ylabel(part.down)
        _mark(figure, axis, part, 0.0, first_column=True)
        bar = figure.colorbar(image, ax=axis, fraction=0.06, pad=0.02)
        bar.outline.set_visible(False)
        bar.set_label(part.unit)
    style.label_below(axes, columns, parts[0].across)
    return style.finish(figure)


def _named(part: HeatMap) -> bool:
    """Return whether rows have names of their own, as tasks do."""
    return not (part.square or part.upward)


def _ends(parts: Sequence[HeatMap]) -> tuple[float, float]:
    low, high = ends(parts)
    return (low, high) if all((part.low, part.high) == (parts[0].low, parts[0].high) for part in parts) else (
        min(ends([part])[0] for part in parts), max(ends([part])[1] for part in parts)
    )  # fmt: skip


def _name(one: Owned, parts: Sequence[HeatMap]) -> str:
    """Return what a map is about: its choice; of several results the result's name, and below it one of several."""
    if one.alone:
        return str(one.plot.choice)
    return plain(one.name) + (f"\n{one.plot.choice}" if len({part.choice for part in parts}) > 1 else "")


def _map(axis: Any, part: HeatMap, norm: Any, colors: Any, cell: float) -> Any:
    """Draw the cells, each so many points wide, with their values where these fit, and return what has the colours."""
    values = np.array(part.values, dtype=np.float64)
    image = axis.pcolormesh(values, cmap=colors, norm=norm, edgecolors="face", linewidth=0.5)  # no seams in PDF
    axis.grid(visible=False)
    for side in axis.spines.values():
        side.set_visible(False)
    if part.square:
        axis.set_aspect("equal")
    if not (part.square or part.upward):
        axis.set_ylim(len(part.rows), 0)
    size = min(6.5, cell / 2.5)
    printed = max(values.shape) <= PRINTED and size >= SMALLEST
    if printed:
        _print(axis, values, norm, size)
    found = [(i, j) for i, j in enumerate(part.rings) if j is not None]
    wide = {"markersize": 3 * size if printed else 4}
    for mark in ({"mec": "white", "mew": 1.8}, {}) if found else ():  # white below, to be seen on the darkest cells
        axis.plot(
            [j + 0.5 for _, j in found],
            [i + 0.5 for i, _ in found],
            **ring() | wide | mark,
        )
    return image


def _print(axis: Any, values: Values, norm: Any, size: float) -> None:
    for (i, j), value in np.ndenumerate(values):
        if math.isfinite(value):
            text = f"{round(float(value), 2) + 0.0:.2f}"  # + 0.0: no minus before nothing
            text = text.replace("1.00", "1.0").replace("0.", ".", 1)
            color = "white" if norm(value) < 0.55 else "black"
            axis.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=size, color=color)


def _mark(figure: Any, axis: Any, part: HeatMap, side: float, *, first_column: bool) -> None:
    """Name rows and columns, at most about so many."""
    most = max(5, int(side * 5)) if part.square else 6
    short = [name if len(name) <= 10 else f"{name[:4]}…{name[-5:]}" for name in part.columns]
    axis.set_xticks(*name_columns(short, most))
    if _named(part):
        names = [style.fitted(figure, name, 0.28, 6) if first_column else "" for name in part.rows]
        axis.set_yticks(np.arange(len(names)) + 0.5, names, fontsize=6)
    else:
        axis.set_yticks(*name_columns(list(part.rows), most))
    axis.tick_params(length=0)
    if part.square and not part.columns[-1].isdigit():
        axis.get_xticklabels()[-1].set_rotation(90)


def _bar(figure: Any, axes: list[Any], image: Any, part: HeatMap) -> None:
    """Draw what the colours stand for: beside a single map, below several."""
    width = figure.get_figwidth()
    beyond = "both" if part.diverging else "neither"
    if len(axes) == 1 and not _named(part):
        bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, aspect=30, extend=beyond)
    else:
        figure.set_figheight(figure.get_figheight() + (0.7 if _named(part) else 0.5))
        share = 0.5 / figure.get_figheight() if _named(part) else 0.1
        bar = figure.colorbar(
            image, ax=axes, location="bottom", fraction=share / 2, pad=0.04, shrink=0.6, aspect=6 * width, extend=beyond
        )
    bar.outline.set_visible(False)
    note = part.note.split("; ") if part.note and _named(part) else []
    lines = [part.title + (f" ({part.variant})" if part.variant else ""), *note]
    bar.set_label("\n".join(style.fitted(figure, line, 0.65, 7.5) for line in lines))


def draw_boxes(owned: Sequence[Owned], title: str, width: float) -> Any:
    """Return a figure of box plots, a panel for each result."""
    columns = style.panel_columns(width, len(owned))
    figure, axes = style.sheet(width, len(owned), columns, 2.0, title)
    for axis, one in zip(axes, owned, strict=True):
        part: Boxes = one.plot
        _boxes(axis, part, _color(one))
        names = [box.name for box in part.boxes]
        mark_layers(axis, int(names[-1]), most=8 if width / columns > 2 else 5)
        axis.set_title(f"{part.title}, {part.choice}" if one.alone else f"{plain(one.name)}\n{part.choice}")
        axis.set_ylabel(part.y)
    style.label_below(axes, columns, owned[0].plot.x)
    first: Boxes = owned[0].plot
    shade: dict[str, Any] = {
        "facecolor": _color(owned[0]) if owned[0].alone else "#777777",
        "alpha": LIGHT,
        "edgecolor": style.DARK,
    }
    style.explain(
        figure,
        [
            Line2D([], [], color=style.DARK, linewidth=1.2, label=first.legend[0]),
            Patch(**shade, linewidth=0.6, label=first.legend[1]),
            Line2D([], [], color=style.DARK, linewidth=0.6, label=first.legend[2]),
        ],
    )
    return style.finish(figure)


def _color(one: Owned) -> str:
    return str(style.look(0 if one.alone else one.number)["color"])


def _boxes(axis: Any, part: Boxes, color: str) -> None:
    thin = {"color": style.DARK, "linewidth": 0.6}
    axis.bxp(
        [
            {"q1": b.quartiles[0], "med": b.quartiles[1], "q3": b.quartiles[2], "whislo": b.whiskers[0],
             "whishi": b.whiskers[1]}
            for b in part.boxes
        ],
        positions=[int(box.name) for box in part.boxes],
        widths=0.6,
        showfliers=False,
        patch_artist=True,
        manage_ticks=False,
        boxprops={"facecolor": (color, LIGHT), "edgecolor": style.DARK, "linewidth": 0.6},
        medianprops={"color": style.DARK, "linewidth": 1.2},
        whiskerprops=thin,
        capprops=thin,
    )  # fmt: skip


def draw_bars(owned: Sequence[Owned], title: str, width: float) -> Any:
    """Return a figure of bars with their intervals, a panel for each title; several results below each other."""
    titles = list(dict.fromkeys(one.plot.choice or one.plot.title for one in owned))
    rows = list(dict.fromkeys(row for one in owned for row in one.plot.rows))
    results = list(dict.fromkeys((one.number, one.name) for one in owned))
    columns = 1 if style.is_narrow(width) else min(2, len(titles))
    high = len(rows) * max(ROW, 0.07 * (len(results) + 1)) + 0.5
    figure, axes = style.sheet(width, len(titles), columns, high, title)
    for i, (axis, name) in enumerate(zip(axes, titles, strict=True)):
        mine = [one for one in owned if name == (one.plot.choice or one.plot.title)]
        for one in mine:
            _lying(axis, one, rows, results.index((one.number, one.name)), len(results))
        axis.set_title(name)
        if mine[0].plot.x.range:
            axis.set_xlim(*mine[0].plot.x.range)
        axis.axvline(0, color=style.DARK, linewidth=0.6)
        axis.set_ylim(len(rows) - 0.5, -0.5)
        there = i % columns == 0
        axis.set_yticks(range(len(rows)), [style.fitted(figure, row, 0.3, 7) if there else "" for row in rows])
        axis.tick_params(axis="y", length=0)
        axis.grid(visible=False, axis="y")
    handles: list[Any] = []
    if len(results) > 1:
        handles = [Patch(color=style.look(i)["color"], label=name) for i, (_, name) in enumerate(results)]
    note = owned[0].plot.note
    handles += [Line2D([], [], color=style.DARK, linewidth=0.8, label=note)] if note else []
    style.explain(figure, handles)
    return style.finish(figure)


def _lying(axis: Any, one: Owned, rows: list[str], number: int, of: int) -> None:
    part: Bars = one.plot
    height = 0.7 / of
    at = [rows.index(row) - 0.35 + (number + 0.5) * height for row in part.rows]
    axis.barh(at, part.values, height=height, color=style.look(number)["color"], alpha=0.75)
    for y, low, high in zip(at, part.low, part.high, strict=bool(part.low)):
        axis.plot([low, high], [y, y], color=style.DARK, linewidth=0.8)
