"""Charts in figures: lines, points and bars of results over each other, or a panel for each result."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from layerscope.show.figures import style
from layerscope.show.figures.style import Values
from layerscope.show.numbers import NIL
from layerscope.show.plain import plain
from layerscope.show.plots import Chart, Series

BAND = 0.2
GREY = "#777777"
TONES = {"ink": style.DARK, "muted": "#8a8a8a"}
PALE = "#c8c8c8"
MANY = 1000
"""An axis of whole numbers beyond this counts something other than layers."""


@dataclass(frozen=True)
class Owned:
    """A plot of a result: what the result is called, its number among the others, and whether it is alone."""

    plot: Any
    name: str
    number: int
    alone: bool


Panel = tuple[str, Sequence[Owned]]
"""Charts that share a panel, under a title."""


def draw_charts(panels: Sequence[Panel], names: Sequence[str], title: str, width: float) -> Any:
    """Return a figure of small multiples; `names` are the series that lie over each other anywhere, in one order."""
    first: Chart = panels[0][1][0].plot
    columns, height = style.panel_columns(width, len(panels)), first.height
    if first.sheet:
        most = 2 if style.is_narrow(width) else 3
        columns = 2 if len(panels) == 4 else min(most, len(panels))
        height = 1.75 if len(panels) == 1 else 1.5
    figure, axes = style.sheet(width, len(panels), columns, height, title)
    several = len({owned.plot.x.depth for _, charts in panels for owned in charts} - {None}) > 1
    for axis, (name, charts) in zip(axes, panels, strict=True):
        across = _panel(axis, charts, names, 8 if width / columns > 2 else 4, several)
        axis.set_title(name)
        if axis in axes[-columns:]:
            axis.set_xlabel(across)
    style.explain(figure, _handles([owned for _, charts in panels for owned in charts], names))
    return style.finish(figure)


def _panel(
    axis: Any, charts: Sequence[Owned], names: Sequence[str], most: int, several: bool
) -> str:
    """Draw charts over each other, layers of models of `several` depths in percent, and return what lies across."""
    first: Chart = charts[0].plot
    percent = several and bool(first.x.depth) and not charts[0].alone
    drawn = []
    for owned in charts:
        for series in owned.plot.series:
            x = np.array(series.x, dtype=np.float64) * (
                100 / (series.depth or owned.plot.x.depth) if percent else 1
            )
            drawn.append(_series(axis, owned, series, x, look(owned, series, names)))
        for value, name in owned.plot.lines:
            _line(axis, value, name, owned.plot)
    axis.set_ylabel(first.y.title or first.unit)
    style.scale(axis, np.concatenate(drawn), first.y)
    if first.x.depth:
        style.mark_layers(
            axis, 100 if percent else max(owned.plot.x.depth or 1 for owned in charts), most
        )
        return "depth (%)" if percent else first.x.title
    axis.margins(x=0.07)
    if first.x.range is not None:
        axis.set_xlim(*first.x.range)
        end = max(
            (x for owned in charts for series in owned.plot.series for x in series.x),
            default=MANY + 1,
        )
        if first.x.whole and end <= MANY:
            style.mark_layers(axis, int(end), most, first=1)
    return first.x.title


def look(owned: Owned, series: Series, names: Sequence[str]) -> dict[str, Any]:
    """Return how a line looks: those of one result differ by series; of several by result, markers by series."""
    kind = names.index(series.name) if series.name in names else 0
    if isinstance(series.tone, int):
        return style.look(series.tone)
    if series.mark in ("guide", "level"):
        how = (
            style.look(owned.number)["color"]
            if series.tone == "own"
            else TONES.get(series.tone, PALE)
        )
        thin = {"linestyle": style.DASHES[2], "linewidth": 0.7}
        return {"color": how} | (
            thin if series.mark == "guide" else {"linestyle": (0, (4, 2)), "linewidth": 0.8}
        )
    if series.tone == "rival":
        color = style.COLORS[(owned.number + 1) % len(style.COLORS)]
        return {"color": color, "marker": "s", "linestyle": style.DASHES[1], "linewidth": 0.9}
    color = TONES.get(series.tone) or (
        style.COLORS[0] if owned.alone else style.look(owned.number)["color"]
    )
    if series.mark == "points":
        return {
            "color": color,
            "marker": "D" if series.tone == "ink" else "o",
            "markersize": 4,
            "linestyle": "none",
        }
    if not owned.plot.overlaid:
        return {"color": color, "marker": "o"}
    how = style.look(kind) if owned.alone else style.look(owned.number) | _fill(kind, owned.number)
    return how | (
        {"linestyle": style.DASHES[2], "marker": "s", "markerfacecolor": "white"}
        if series.detail
        else {}
    )


def _fill(kind: int, number: int) -> dict[str, Any]:
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
        axis.bar(
            x,
            y,
            color=[PALE if i in series.pale else how["color"] for i in range(len(x))],
            width=0.8,
        )
        return y
    if series.mark in ("guide", "level"):
        axis.plot(x, y, **how)
        return y[:0]
    reach = y
    kept = np.array([i for i in range(len(x)) if i not in series.after], dtype=int)
    longest = chart.overlaid or isinstance(series.tone, int)
    axis.plot(
        x[kept],
        y[kept],
        **how,
        **({"markevery": style.marked(y[kept], owned.number)} if longest else {}),
    )
    if series.errors:
        band = np.nan_to_num(np.array(series.errors, dtype=np.float64)) * chart.y.scale
        low = np.maximum(y - band, y / 2) if chart.y.log else y - band
        if series.mark == "points":
            axis.errorbar(x, y, yerr=band, fmt="none", ecolor=how["color"], elinewidth=0.8)
        else:
            axis.fill_between(
                x[kept], low[kept], (y + band)[kept], color=how["color"], alpha=BAND, linewidth=0
            )
        reach = np.concatenate([low, y + band])
    for i in series.after:
        axis.plot(x[i], y[i], **style.DIAMOND, mec=how["color"])
    below = {"textcoords": "offset points", "ha": "center", "annotation_clip": True, "fontsize": 7}
    for label, i in zip(series.labels, range(len(x)), strict=False):
        axis.annotate(plain(label), (x[i], y[i]), (0, -8.5), **below)
    for i in series.marked:
        axis.plot(x[i], y[i], **style.RING)
    return reach


def _line(axis: Any, value: float, name: str, chart: Chart) -> None:
    """Draw a number across a chart, its name at the end where there is room."""
    highest = max((y for series in chart.series for y in series.y if np.isfinite(y)), default=1.0)
    axis.set_ylim(0, 1.2 * max(0.01, highest) * chart.y.scale)
    axis.axvline(value, color=style.DARK, linestyle="--", linewidth=1)
    ends = [x for series in chart.series for x in series.x] or [value]
    share = (value - min(ends)) / ((max(ends) - min(ends)) or 1.0)
    side = "left" if share < 1 / 3 else "right" if share > 2 / 3 else "center"
    axis.annotate(
        f" {name} ",
        (value, 0.98),
        xycoords=("data", "axes fraction"),
        ha=side,
        va="top",
        bbox={"facecolor": "white", "linewidth": 0, "pad": 0.5},
    )


def _handles(owned: Sequence[Owned], names: Sequence[str]) -> list[Any]:
    """Return what the legend has: results, series, band, ring and diamond, each where it is there."""
    first: Chart = owned[0].plot
    drawn = [(one, series) for one in owned for series in one.plot.series if series.mark != "guide"]
    handles: list[Any] = []
    if first.overlaid and not owned[0].alone:
        there = {one.number: one.name for one in owned}
        handles += [
            Line2D([], [], label=name, **style.look(number))
            for number, name in sorted(there.items())
        ]
    known = {series.name: (one, series) for one, series in reversed(drawn) if not series.detail}
    for name in dict.fromkeys(series.name for _, series in drawn if series.name in known):
        one, series = known[name]
        how = look(one, series, names)
        if not first.overlaid and name:
            bars = series.mark == "bars"
            handles.append(
                Patch(color=how["color"], label=name) if bars else Line2D([], [], label=name, **how)
            )
        elif first.overlaid and len(names) > 1:
            kind = names.index(name)
            grey = {"color": GREY, "marker": "o", "linestyle": "none"} | _fill(kind, 0)
            grey |= {
                "markerfacecolor": "white"
                if style.FILLS[kind % len(style.FILLS)] == "none"
                else GREY
            }
            handles.append(Line2D([], [], label=name or "by token", **(how if one.alone else grey)))
    details = {
        series.detail: look(one, series, names) for one, series in reversed(drawn) if series.detail
    }
    handles += [Line2D([], [], label=name, **how) for name, how in details.items()]
    shade = style.COLORS[0] if owned[0].alone else GREY
    if any(series.errors and series.mark == "line" for _, series in drawn):
        handles.append(
            Patch(
                color=shade,
                alpha=BAND,
                linewidth=0,
                label=f"± one {first.spread or 'standard error'}",
            )
        )
    if any(series.marked for _, series in drawn):
        what = "layer that stands out" if first.marked == "stands out" else first.marked
        handles.append(Line2D([], [], label=what, **style.RING))
    if any(series.after for _, series in drawn):
        handles.append(Line2D([], [], label="after the final norm", **style.DIAMOND, mec=shade))
    return handles
