"""A plot as a Vega-Lite specification, which page, notebook and figure share.

Each kind of plot is a few layers over the rows behind it: a chart is bands, lines, dots, rings and
labels; a heat map cells, rings and numbers. Texts from data are values of rows or of scales, never a
part of an expression.
"""

import math
from collections.abc import Sequence

from layerscope.show.encoding import Json
from layerscope.show.lines import Room, chart, chart_rows
from layerscope.show.looks import Owned
from layerscope.show.maps import bars, heat_map
from layerscope.show.plots import Bars, Chart, HeatMap
from layerscope.show.rows import Row, rows

VIEWS = {HeatMap: heat_map, Bars: bars}


def view(owned: Sequence[Owned], names: list[str], room: Room, rivals: Sequence[Owned]) -> Json:
    """Return the specification of plots in one panel, without its rows.

    `names` are the series of all charts; `rivals` are the plots beside it, whose axes it shares.
    """
    kind = type(owned[0].plot)
    return chart(owned, room, rivals, names) if kind is Chart else VIEWS[kind](owned, room, rivals)


def drawn(one: Owned) -> list[Row]:
    """Return the rows of a plot with what its layers need to know of each."""
    if isinstance(one.plot, Chart):
        return list(chart_rows(one))
    return [{"run": one.name, **row} for row in rows(one.plot)]


def notes(owned: Sequence[Owned]) -> list[str]:
    """Return what the marks of a panel stand for, where they are there."""
    first = owned[0].plot
    if not isinstance(first, Chart):
        return first.note.split("; ") if first.note else []
    series = [one for each in owned for one in each.plot.series]
    found = [f"○ {first.marked}"] if any(one.marked for one in series) else []
    if any(one.after for one in series):
        found.append("◇ after the final norm")
    if any(math.isfinite(error) for one in series for error in one.errors):
        shape = "bars" if all(one.mark == "points" for one in series if one.errors) else "bands"
        found.append(f"{shape}: ± one {first.spread or 'standard error'}")
    return found + ([first.note] if first.note and not first.spread else [])
