"""Charts of documents, a panel for each document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from layerscope.reports.figures.lines import mark_layers
from layerscope.show.figures import style
from layerscope.show.plain import plain
from layerscope.show.plots import Axis, Chart, Series

TONES: dict[str | int, str] = {"own": style.COLORS[0], "rival": style.COLORS[1], "ink": style.DARK, "muted": "#8a8a8a"}
PALE = "#c8c8c8"
RING: dict[str, Any] = {
    "marker": "o", "markersize": 8, "mfc": "none", "mec": style.DARK, "mew": 1.0, "linestyle": "none", "clip_on": False,
}  # fmt: skip


def draw_charts(charts: Sequence[Chart], names: Sequence[str], width: float) -> Any:
    """Return a figure of charts of several results, a panel for each; of several each panel has its result's name."""
    columns = style.panel_columns(width, len(charts))
    title = plain(names[0]) if len(names) == 1 else ""
    figure, axes = style.sheet(width, len(charts), columns, charts[0].height, title)
    for axis, chart, name in zip(axes, charts, names, strict=True):
        if len(names) > 1:
            axis.set_title(plain(name))
        for series in chart.series:
            _draw(axis, series)
        axis.margins(x=0.07)
        _range(axis.set_xlim, chart.x)
        _range(axis.set_ylim, chart.y)
        axis.set_ylabel(chart.y.title)
        if chart.x.whole:
            deepest = int(max(x for series in chart.series for x in series.x))
            mark_layers(axis, deepest, most=8 if width / columns > 2 else 5, first=1)
    style.label_below(axes, columns, charts[0].x.title)
    style.explain(figure, _handles(charts[0]))
    return style.finish(figure)


def _look(series: Series) -> dict[str, Any]:
    color = TONES[series.tone]
    if series.mark == "guide":
        return {"color": color, "linestyle": style.DASHES[2], "linewidth": 0.7}
    if series.mark == "points":
        return {"color": color, "marker": "D" if series.tone == "ink" else "o", "markersize": 4, "linestyle": "none"}
    if series.tone == "rival":
        return {"color": color, "marker": "s", "linestyle": style.DASHES[1], "linewidth": 0.9}
    return {"color": color, "marker": "o"}


def _draw(axis: Any, series: Series) -> None:
    if series.mark == "bars":
        colors = [PALE if i in series.pale else TONES[series.tone] for i in range(len(series.x))]
        axis.bar(series.x, series.y, color=colors, width=0.8)
        return
    axis.plot(series.x, series.y, **_look(series))
    for label, x, y in zip(series.labels, series.x, series.y, strict=False):
        axis.annotate(
            plain(label), (x, y), (0, -8.5), textcoords="offset points", ha="center", annotation_clip=True, fontsize=6.5
        )
    if series.marked:
        axis.plot([series.x[i] for i in series.marked], [series.y[i] for i in series.marked], **RING)


def _range(limit: Any, axis: Axis) -> None:
    if axis.range is not None:
        limit(*axis.range)


def _handles(chart: Chart) -> list[Any]:
    """Return what stands for each series, and for a point that is chosen."""
    named = [series for series in chart.series if series.name]
    found: list[Any] = [
        Patch(color=TONES[series.tone], label=series.name)
        if series.mark == "bars"
        else Line2D([], [], label=series.name, **_look(series))
        for series in named
    ]
    chosen = [Line2D([], [], label="chosen", **RING)] if any(series.marked for series in named) else []
    return [*found, *chosen]
