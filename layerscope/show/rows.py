"""The table behind a plot, whatever draws it: a row for each point, cell or bar, with the name of its result."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from layerscope.show.looks import Owned
from layerscope.show.numbers import NIL
from layerscope.show.plain import plain
from layerscope.show.plots import Bars, Chart, HeatMap, Plot, Series

Row = dict[str, Any]
MARKED = 26
"""Lines of more points than this carry about this many dots."""


def rows(one: Owned) -> list[Row]:
    """Return the rows of a plot; what a row does not have is left out of it, values that are not finite are None."""
    return [{"run": one.name, **row} for row in ROWS[type(one.plot)](one)]


def titles(plot: Plot) -> Mapping[str, str]:
    """Return what the columns of the table behind a plot are called; the others are for drawing alone."""
    if isinstance(plot, Chart):
        x, y = plot.x.title, plot.y.title or "value"
        return {
            "series": "series",
            "x": x,
            "y": y,
            "error": "stderr",
            "marked": plot.marked,
        }
    if isinstance(plot, HeatMap):
        down, across = plot.down or "row", plot.across or "column"
        column = f"{across}_b" if across == down else across
        return {"row": down, "column": column, "value": "value"}
    assert isinstance(plot, Bars)
    return {"name": "name", "value": plot.x.title, "low": "low", "high": "high"}


def finite(value: float) -> float | None:
    """Return a number as JSON can hold it, rounding to nothing where it is nothing else."""
    if not math.isfinite(value):
        return None
    return 0.0 if abs(value) < NIL else float(f"{value:.6g}")


def _chart(one: Owned) -> Iterator[Row]:
    for number, series in enumerate(one.plot.series):
        for row in _points(one.plot, series, one.number):
            yield row | {"line": f"{one.number}.{number}"}


def _points(chart: Chart, series: Series, offset: int) -> Iterator[Row]:
    step = math.ceil(len(series.x) / MARKED)
    for i, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
        mark = "after" if i in series.after else series.mark
        row: Row = {
            "series": plain(series.name),
            "x": finite(x),
            "y": finite(y * chart.y.scale),
        }
        row["mark"] = mark
        if series.errors:
            row["error"] = finite(series.errors[i] * chart.y.scale)
        if chart.x.depth:
            row["depth"] = chart.x.depth
        if i in series.marked:
            row["marked"] = True
        if (i + offset) % step == 0:
            row["dot"] = True
        yield row


def _map(one: Owned) -> Iterator[Row]:
    part: HeatMap = one.plot
    for i, (name, line) in enumerate(zip(part.rows, part.values, strict=True)):
        for j, (column, value) in enumerate(zip(part.columns, line, strict=True)):
            row: Row = {
                "row": plain(name),
                "column": plain(column),
                "value": finite(value),
            }
            if part.shown:
                row["text"] = plain(part.shown[i][j])
            if part.rings and part.rings[i] == j:
                row["marked"] = True
            yield row


def _bars(one: Owned) -> Iterator[Row]:
    part: Bars = one.plot
    for i, (name, value) in enumerate(zip(part.rows, part.values, strict=True)):
        row: Row = {"name": plain(name), "value": finite(value)}
        if part.low:
            row |= {"low": finite(part.low[i]), "high": finite(part.high[i])}
        yield row


ROWS: dict[type[Plot], Callable[[Owned], Iterator[Row]]] = {
    Chart: _chart,
    HeatMap: _map,
    Bars: _bars,
}
