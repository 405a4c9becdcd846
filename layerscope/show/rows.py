"""The table behind a plot, whatever draws it: a row for each point, cell or bar, with the name of its result."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from layerscope.show.looks import Owned
from layerscope.show.numbers import NIL
from layerscope.show.plain import plain
from layerscope.show.plots import Bars, Chart, HeatMap, Plot

Row = dict[str, Any]
MARKED = 26
"""Lines of more points than this carry about this many dots."""


def rows(one: Owned) -> list[Row]:
    """Return the rows of a plot; what a row does not have is left out of it, values that are not finite are None."""
    plot = one.plot
    if isinstance(plot, Chart):
        made = _chart(plot, one.number)
    elif isinstance(plot, HeatMap):
        made = _map(plot)
    else:
        made = _bars(plot)
    return [{"run": one.name, **row} for row in made]


def titles(plot: Plot) -> Mapping[str, str]:
    """Return what the columns of the table behind a plot are called; the others are for drawing alone."""
    if isinstance(plot, Chart):
        return {
            "series": "series",
            "x": plot.x.title,
            "y": plot.y.title or "value",
            "error": "stderr",
            "marked": plot.marked,
        }
    if isinstance(plot, HeatMap):
        down = plot.down or "row"
        across = plot.across or "column"
        column = f"{across}_b" if across == down else across
        return {"row": down, "column": column, "value": "value"}
    assert isinstance(plot, Bars)
    return {"name": "name", "value": plot.x.title, "low": "low", "high": "high"}


def finite(value: float) -> float | None:
    """Return a number as JSON can hold it, rounding to nothing where it is nothing else."""
    if not math.isfinite(value):
        return None
    if abs(value) < NIL:
        return 0.0
    return float(f"{value:.6g}")


def _chart(chart: Chart, offset: int) -> Iterator[Row]:
    for number, series in enumerate(chart.series):
        line = f"{offset}.{number}"
        step = math.ceil(len(series.x) / MARKED)
        for i, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
            row: Row = {
                "series": plain(series.name),
                "line": line,
                "x": finite(x),
                "y": finite(y * chart.y.scale),
                "mark": series.mark,
            }
            if i in series.after:
                row["mark"] = "after"
            if series.errors:
                row["error"] = finite(series.errors[i] * chart.y.scale)
            if chart.x.depth:
                row["depth"] = chart.x.depth
            if i in series.marked:
                row["marked"] = True
            if (i + offset) % step == 0:
                row["dot"] = True
            yield row


def _map(part: HeatMap) -> Iterator[Row]:
    for i, name in enumerate(part.rows):
        for j, column in enumerate(part.columns):
            row: Row = {
                "row": plain(name),
                "column": plain(column),
                "value": finite(part.values[i][j]),
            }
            if part.shown:
                row["text"] = plain(part.shown[i][j])
            if part.rings and part.rings[i] == j:
                row["marked"] = True
            yield row


def _bars(part: Bars) -> Iterator[Row]:
    for i, name in enumerate(part.rows):
        row: Row = {"name": plain(name), "value": finite(part.values[i])}
        if part.low:
            row["low"] = finite(part.low[i])
            row["high"] = finite(part.high[i])
        yield row
