"""Charts in figures: lines, points and bars of results over each other, or a panel for each result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from layerscope.show.figures import style
from layerscope.show.figures.axes import Values, diamond, mark_layers, marked, ring, scale
from layerscope.show.numbers import NIL
from layerscope.show.plain import plain
from layerscope.show.plots import Chart, Series

BAND = 0.2
GREY = "#777777"
TONES = {"ink": style.DARK, "muted": "#8a8a8a"}
PALE = "#c8c8c8"


@dataclass(frozen=True)
class Owned:
    """A plot of a result: what the result is called, its number among the others, and whether it is alone."""

    plot: Any
    name: str
    number: int
    alone: bool


@dataclass(frozen=True)
class Panel:
    """Charts that share a panel, under a title."""

    title: str
    charts: tuple[Owned, ...]


def draw_charts(panels: Sequence[Panel], names: Sequence[str], title: str, width: float) -> Any:
    """Return a figure of small multiples; `names` are the series that lie over each other anywhere, in one order."""
    small = len(panels) > 1 and all(len({owned.number for owned in panel.charts}) >= 1 for panel in panels)
    columns, height = _shape(panels, width)
    figure, axes = style.sheet(width, len(panels), columns, height, title)
    most = 8 if width / columns > 2 else 5
    for axis, panel in zip(axes, panels, strict=True):
        _panel(axis, panel, names, most)
        if panel.title or small:
            axis.set_title(panel.title)
    for axis, panel in list(zip(axes, panels, strict=True))[-columns:]:
        axis.set_xlabel(_across(panel))
    style.explain(figure, _handles([owned for panel in panels for owned in panel.charts], names))
    return style.finish(figure)


def _shape(panels: Sequence[Panel], width: float) -> tuple[int, float]:
    """Return how many panels stand beside each other, and how high they are."""
    first = panels[0].charts[0].plot
    if not first.sheet:
        return style.panel_columns(width, len(panels)), first.height
    most = 2 if style.is_narrow(width) else 3
    columns = 2 if len(panels) == 4 else min(most, len(panels))
    return columns, 1.75 if len(panels) == 1 else 1.45 if most == 3 else 1.3


def _across(panel: Panel) -> str:
    chart = panel.charts[0].plot
    return "depth (%)" if _by_percent(panel) else chart.x.title


def _by_percent(panel: Panel) -> bool:
    """Return whether layers stand at their depth in percent: of several results."""
    return bool(panel.charts[0].plot.x.depth) and not panel.charts[0].alone


def _panel(axis: Any, panel: Panel, names: Sequence[str], most: int) -> None:
    charts = panel.charts
    first: Chart = charts[0].plot
    percent = _by_percent(panel)
    drawn = []
    for owned in charts:
        for series in owned.plot.series:
            x = np.array(series.x, dtype=np.float64) * (100 / (series.depth or owned.plot.x.depth) if percent else 1)
            drawn.append(_series(axis, owned, series, x, look(owned, series, names)))
        for value, name in owned.plot.lines:
            _line(axis, value, name, owned.plot)
    axis.set_ylabel(first.y.title or first.unit)
    scale(axis, np.concatenate(drawn), first.y)
    if first.x.depth:
        mark_layers(axis, 100 if percent else max(owned.plot.x.depth or 1 for owned in charts), most)
    else:
        axis.margins(x=0.07)
        if first.x.range is not None:
            axis.set_xlim(*first.x.range)
        ends = [x for owned in charts for series in owned.plot.series for x in series.x]
        if first.x.whole and ends and max(ends) <= 1000 and first.x.range is not None:
            mark_layers(axis, int(max(ends)), most, first=1)


def look(owned: Owned, series: Series, names: Sequence[str]) -> dict[str, Any]:
    """Return how a line looks: those of one result differ by series; of several by result, markers by series."""
    kind = names.index(series.name) if series.name in names else 0
    if isinstance(series.tone, int):
        return style.look(series.tone)
    if series.mark in ("guide", "level"):
        how = style.look(owned.number)["color"] if series.tone == "own" else TONES.get(series.tone, PALE)
        thin = {"linestyle": style.DASHES[2], "linewidth": 0.7}
        return {"color": how} | (thin if series.mark == "guide" else {"linestyle": (0, (4, 2)), "linewidth": 0.8})
    if series.tone == "rival":
        color = style.COLORS[(owned.number + 1) % len(style.COLORS)]
        return {"color": color, "marker": "s", "linestyle": style.DASHES[1], "linewidth": 0.9}
    color = TONES.get(series.tone) or (style.COLORS[0] if owned.alone else style.look(owned.number)["color"])
    if series.mark == "points":
        return {"color": color, "marker": "D" if series.tone == "ink" else "o", "markersize": 4, "linestyle": "none"}
    if not owned.plot.overlaid:
        return {"color": color, "marker": "o"}
    how = style.look(kind) if owned.alone else style.look(owned.number) | _fill(kind, owned.number)
    return how | ({"linestyle": style.DASHES[2], "marker": "s", "markerfacecolor": "white"} if series.detail else {})


def _fill(kind: int, number: int) -> dict[str, Any]:
    """Return how the markers of a series are filled."""
    fill = style.FILLS[kind % len(style.FILLS)]
    if fill == "none":  # white, so that the line does not cross it
        return {"markerfacecolor": "white", "linewidth": 0.8}
    color = style.look(number)["color"]
    how = {"fillstyle": fill, "markerfacecolor": color, "markerfacecoloralt": "white"}
    return how | ({"linewidth": 0.8} if kind else {})


def _series(axis: Any, owned: Owned, series: Series, x: Values, how: dict[str, Any]) -> Values:
    """Draw a series, its band and its marks, and return what its axis has to show."""
    chart: Chart = owned.plot
    values = np.array(series.y, dtype=np.float64)
    values = np.where(np.abs(values) < NIL, 0.0, values) * chart.y.scale
    y = np.where(np.isfinite(values), values, np.nan)
    if series.right:
        return y[:0]
    if series.mark == "bars":
        colors = [PALE if i in series.pale else how["color"] for i in range(len(x))]
        axis.bar(x, y, color=colors, width=0.8)
        return y
    if series.mark in ("guide", "level"):
        axis.plot(x, y, **how)
        return y[:0]
    kept = np.array([i for i in range(len(x)) if i not in series.after], dtype=int)
    longest = chart.overlaid or isinstance(series.tone, int)
    axis.plot(x[kept], y[kept], **how, **({"markevery": marked(y[kept], owned.number)} if longest else {}))
    if series.errors:
        band = np.nan_to_num(np.array(series.errors, dtype=np.float64)) * chart.y.scale
        if series.mark == "points":
            axis.errorbar(x, y, yerr=band, fmt="none", ecolor=how["color"], elinewidth=0.8)
        else:
            low = (np.maximum(y - band, y / 2) if chart.y.log else y - band)[kept]
            axis.fill_between(x[kept], low, (y + band)[kept], color=how["color"], alpha=BAND, linewidth=0)
    for i in series.after:
        axis.plot(x[i], y[i], **diamond(how["color"]))
    for label, i in zip(series.labels, range(len(x)), strict=False):
        axis.annotate(
            plain(label), (x[i], y[i]), (0, -8.5), textcoords="offset points", ha="center", annotation_clip=True,
            fontsize=6.5,
        )  # fmt: skip
    for i in series.marked:
        axis.plot(x[i], y[i], **ring())
    return y


def _line(axis: Any, value: float, name: str, chart: Chart) -> None:
    """Draw a number across a chart, its name at the end where there is room."""
    highest = max((y for series in chart.series for y in series.y if np.isfinite(y)), default=1.0)
    axis.set_ylim(0, 1.2 * max(0.01, highest) * chart.y.scale)
    axis.axvline(value, color=style.DARK, linestyle="--", linewidth=1)
    ends = [x for series in chart.series for x in series.x] or [value]
    share = (value - min(ends)) / ((max(ends) - min(ends)) or 1.0)
    side = "left" if share < 1 / 3 else "right" if share > 2 / 3 else "center"
    axis.annotate(
        f" {name} ", (value, 0.98), xycoords=("data", "axes fraction"), ha=side, va="top",
        bbox={"facecolor": "white", "linewidth": 0, "pad": 0.5},
    )  # fmt: skip


def _handles(owned: Sequence[Owned], names: Sequence[str]) -> list[Any]:
    """Return what the legend has: results, series, band, ring and diamond, each where it is there."""
    first: Chart = owned[0].plot
    drawn = [(one, series) for one in owned for series in one.plot.series if series.mark != "guide"]
    handles: list[Any] = []
    if first.overlaid and not owned[0].alone:
        there = {one.number: one.name for one in owned}
        handles += [Line2D([], [], label=name, **style.look(number)) for number, name in sorted(there.items())]
    known = {series.name: (one, series) for one, series in reversed(drawn) if not series.detail}
    known = {name: known[name] for name in dict.fromkeys(series.name for _, series in drawn) if name in known}
    if not first.overlaid:
        handles += [_handle(*known[name], names) for name in known if name]
    elif len(names) > 1:
        for name, (one, series) in known.items():
            kind = names.index(name)
            grey = {"color": GREY, "marker": "o", "linestyle": "none"} | _fill(kind, 0)
            grey |= {"markerfacecolor": "white" if style.FILLS[kind % len(style.FILLS)] == "none" else GREY}
            label = name or "by token"
            handles.append(Line2D([], [], label=label, **(look(one, series, names) if one.alone else grey)))
    details = {series.detail: look(one, series, names) for one, series in reversed(drawn) if series.detail}
    handles += [Line2D([], [], label=name, **how) for name, how in details.items()]
    shade = style.COLORS[0] if owned[0].alone else GREY
    if any(series.errors and series.mark == "line" for _, series in drawn):
        handles.append(Patch(color=shade, alpha=BAND, linewidth=0, label="± one standard error"))
    if any(series.marked for _, series in drawn):
        what = "layer that stands out" if first.marked == "stands out" else first.marked
        handles.append(Line2D([], [], label=what, **ring()))
    if any(series.after for _, series in drawn):
        handles.append(Line2D([], [], label="after the final norm", **diamond(shade)))
    return handles


def _handle(owned: Owned, series: Series, names: Sequence[str]) -> Any:
    how = look(owned, series, names)
    if series.mark == "bars":
        return Patch(color=how["color"], label=series.name)
    return Line2D([], [], label=series.name, **how)
