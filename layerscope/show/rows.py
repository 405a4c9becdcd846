"""The table behind a plot: a row for each point, cell or bar, whatever draws it."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from layerscope.show.numbers import NIL
from layerscope.show.plain import plain
from layerscope.show.plots import Bars, Chart, HeatMap, Plot, Series

Row = dict[str, Any]
FLAGS = ("marked", "pale")


def rows(plot: Plot) -> list[Row]:
    """Return the rows of a plot; what a row does not have is left out of it, values that are not finite are None."""
    return list(ROWS[type(plot)](plot))


def titles(plot: Plot) -> Mapping[str, str]:
    """Return what the columns of the table behind a plot are called; the others are for drawing alone."""
    if isinstance(plot, Chart):
        error = plot.spread or "stderr"
        return {
            "series": "series", "x": plot.x.title, "y": plot.y.title or "value", "error": error,
            "marked": plot.marked, "point": "point",
        }  # fmt: skip
    if isinstance(plot, HeatMap):
        down, across = plot.down or "row", plot.across or "column"
        return {
            "row": down, "column": f"{across}_b" if across == down else across, "value": "value",
        }  # fmt: skip
    assert isinstance(plot, Bars)
    return {"name": "name", "value": plot.x.title, "low": "low", "high": "high"}


def finite(value: float) -> float | None:
    """Return a number as JSON can hold it, rounding to nothing where it is nothing else."""
    if not math.isfinite(value):
        return None
    return 0.0 if abs(value) < NIL else float(f"{value:.6g}")


def label(series: Series) -> str:
    """Return what a series is called in a legend."""
    return plain(", ".join(filter(None, (series.name, series.detail))))


def points(chart: Chart, series: Series) -> Iterator[Row]:
    """Yield a row for each point of a series, as it is shown."""
    for i, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
        row: Row = {"series": label(series), "x": finite(x), "y": finite(y * chart.y.scale)}
        if series.errors:
            row["error"] = finite(series.errors[i] * chart.y.scale)
        if series.texts:
            row["point"] = plain(series.texts[i])
        if series.labels:
            row["label"] = plain(series.labels[i])
        row |= {flag: True for flag in FLAGS if i in getattr(series, flag)}
        yield row


def _chart(chart: Chart) -> Iterator[Row]:
    for series in chart.series:
        yield from points(chart, series)


def _map(part: HeatMap) -> Iterator[Row]:
    for i, (name, line) in enumerate(zip(part.rows, part.values, strict=True)):
        for j, (column, value) in enumerate(zip(part.columns, line, strict=True)):
            row: Row = {"row": plain(name), "column": plain(column), "value": finite(value)}
            if part.texts:
                row["point"] = part.texts[i][j]
            if part.shown:
                row["text"] = plain(part.shown[i][j])
            if part.rings and part.rings[i] == j:
                row["marked"] = True
            yield row


def _bars(part: Bars) -> Iterator[Row]:
    for i, (name, value) in enumerate(zip(part.rows, part.values, strict=True)):
        row: Row = {"name": plain(name), "value": finite(value)}
        if part.low:
            row |= {"low": finite(part.low[i]), "high": finite(part.high[i])}
        yield row


ROWS: dict[type[Plot], Callable[[Any], Iterator[Row]]] = {
    Chart: _chart,
    HeatMap: _map,
    Bars: _bars,
}
