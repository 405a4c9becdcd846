"""A plot as a Vega-Lite specification, which page, notebook and figure share.

Each kind of plot is a few layers over the rows behind it: a chart is bands, lines, dots and rings
(`lines`); a heat map cells, rings and numbers; bars are bars and their intervals. Texts from data
are values of rows or of scales, never a part of an expression.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from layerscope.show.lines import DIGIT, Room, chart, legend
from layerscope.show.looks import (
    AROUND,
    INK,
    RING,
    Json,
    Owned,
    category,
    hover,
    layer,
    nothing,
    numbered,
    quantity,
)
from layerscope.show.plots import NOTHING, Bars, Chart, HeatMap

PRINTED = 16
"""Maps of at most this many columns print their values, where they fit."""
NAMED = 60
"""Rows at most of such a map, where they have names."""
WHOLE = {"band": 1.04}
"""Cells of a map overlap by a little, so that no seam is seen between them."""
PRINT = "printed"
"""The layer of values in the cells of a map, which a page leaves out where it is too narrow."""
SCHEME = "cividis"
"""Its brightness rises evenly: the same map in grey."""
VALUE = "isValid(datum.value)"


def view(
    owned: Sequence[Owned], names: list[str], room: Room, rivals: Sequence[Owned]
) -> Json:
    """Return the specification of plots in one panel, without its rows.

    `names` are the series of all charts; `rivals` are the plots beside it, whose legend or colours
    it shares.
    """
    plot = owned[0].plot
    if isinstance(plot, Chart):
        return chart(owned, room, rivals, names)
    if isinstance(plot, HeatMap):
        return heat_map(owned[0], room, rivals)
    return bars(owned, room)


def notes(owned: Sequence[Owned]) -> Iterator[str]:
    """Yield what the marks of a panel stand for, where they are there."""
    first = owned[0].plot
    if isinstance(first, Chart):
        series = [*chain.from_iterable(one.plot.series for one in owned)]
        if any(one.marked for one in series):
            yield f"○ {first.marked}"
        if any(one.after for one in series):
            yield "◇ after the final norm"
        if np.isfinite([*chain.from_iterable(one.errors for one in series)]).any():
            yield "bands and bars: ± one standard error"
    if first.note:
        yield first.note


def heat_map(one: Owned, room: Room, rivals: Sequence[Owned]) -> Json:
    """Return cells in colours of one scale for all maps of a unit, with rings and, where they fit, numbers."""
    part: HeatMap = one.plot
    if not np.isfinite(part.values).any():
        return nothing(part.note or "no value")
    plots = [other.plot for other in rivals]
    ends = _scale_of([plot for plot in plots if plot.unit == part.unit])
    named = not (part.square or part.upward)
    across = {"title": part.across or None, "labelOverlap": True}
    down: Json = {
        "labelLimit": room.panel / 3,
        "labelOverlap": not named,
        "title": None,
    }
    if not named:
        down["title"] = part.down
    place = {
        "x": category("column", axis=across),
        "y": category("row", axis=down, scale={"reverse": not named}),
    }
    key = {
        "orient": "right",
        "title": part.unit or None,
        "gradientThickness": 8,
        "tickCount": 4,
    }
    tooltips = [
        hover("row") | {"title": part.down or "row"},
        hover("column") | {"title": f"{part.across or 'column'} across"},
        hover("value", part.unit or "value"),
    ]
    if not one.alone:
        tooltips.insert(0, hover("run"))
    color = quantity("value", scale=_colors(part, *ends), legend=key)
    cells = place | {"color": color, "tooltip": tooltips}
    cell = {"type": "rect", "width": WHOLE, "height": WHOLE}
    layers = [layer(cell, VALUE, cells)]
    if part.rings:
        ring: Json = {
            "type": "point",
            "filled": False,
            "size": 50,
            "strokeWidth": 1.4,
            "color": RING,
        }
        if part.diverging:
            ring["color"] = INK
        layers.append(layer(ring, "datum.marked", place))
    if _fits(part, named, room.panel):
        layers.append(_printed(part, *ends, place))
    return {"layer": layers}


def _scale_of(maps: Sequence[HeatMap]) -> tuple[float, float]:
    """Return the one scale of heat maps: what they ask for, else their least and their most number."""
    values = np.concatenate([np.ravel(part.values) for part in maps])
    values = values[np.isfinite(values)]
    least = float(values.min())
    most = float(values.max())
    lows = []
    highs = []
    for part in maps:
        high = part.high
        if high is None:
            high = most
        low = part.low
        if low is None:
            low = min(least, high - part.least)
        lows.append(low)
        highs.append(high)
    low = min(lows)
    high = max(highs)
    if high > low:
        return low, high
    return low - NOTHING, high + NOTHING


def _colors(part: HeatMap, low: float, high: float) -> Json:
    scale: Json = {"domain": [low, high], "clamp": True, "nice": False}
    if part.log and low > 0:
        scale["type"] = "log"
    if part.diverging:
        return scale | {
            "domain": [low, (low + high) / 2, high],
            "range": list(AROUND),
            "interpolate": "lab",
        }
    return scale | {"scheme": SCHEME, "reverse": part.reversed}


def digits(part: HeatMap) -> int:
    """Return the characters of the longest value that a map prints."""
    return max(map(len, chain.from_iterable(part.shown)), default=4)


def _fits(part: HeatMap, named: bool, width: float) -> bool:
    """Return whether there is room for the values in the cells."""
    columns = len(part.columns)
    most = PRINTED
    names = 50.0
    if named:
        most = NAMED
        names = width / 3
    cell = (width - names) / columns
    few = columns <= PRINTED and len(part.rows) <= most
    return few and cell > 1.15 * DIGIT * digits(part)


def _printed(part: HeatMap, low: float, high: float, place: Json) -> Json:
    """Return the layer of the values in a map's cells, white on dark ones."""
    sign = "<>"[part.reversed]
    dark = f"datum.value {sign} {low + 0.55 * (high - low)}"
    if part.diverging:
        dark = f"abs(datum.value - {(low + high) / 2}) > {0.3 * (high - low)}"
    # in both themes
    color = {"condition": {"test": dark, "value": "#ffffff"}, "value": "#1b1b1a"}
    text: Json = {"field": "value", "format": ".2f"}
    if part.shown:
        text = {"field": "text"}
    mark = {"type": "text", "style": "cell"}
    return {"name": PRINT, **layer(mark, VALUE, place | {"text": text, "color": color})}


def bars(owned: Sequence[Owned], room: Room) -> Json:
    """Return bars that lie, and their intervals; several results lie below each other."""
    part: Bars = owned[0].plot
    colors = {one.name: numbered(one.number).color for one in owned}
    names = {"title": None, "labelLimit": room.panel / 3}
    side: Json = {"y": category("name", axis=names)}
    if len(colors) > 1:
        side["yOffset"] = {"field": "run"}
    numbers = [hover(name, name) for name in ("value", "low", "high")]
    bar = {
        "x": quantity("value", axis={"title": part.x.title, "grid": True}),
        "color": legend("run", colors, room.legend),
        "tooltip": [hover("name"), *numbers],
    }
    interval = {"x": quantity("low"), "x2": {"field": "high"}}
    return {
        "layer": [
            layer({"type": "bar", "opacity": 0.75}, VALUE, side | bar),
            layer({"type": "rule"}, "isValid(datum.low)", side | interval),
        ]
    }
