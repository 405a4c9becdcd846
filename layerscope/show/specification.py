"""A plot as a Vega-Lite specification, which page, notebook and figure share.

Each kind of plot is a few layers over the rows behind it: a chart is bands, lines, dots and rings
(`lines`); a heat map cells, rings and numbers; bars are bars and their intervals. Texts from data
are values of rows or of scales, never a part of an expression.
"""

import math
from collections.abc import Sequence

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
from layerscope.show.plots import Bars, Chart, HeatMap, ends

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
    return (
        heat_map(owned[0], room, rivals)
        if isinstance(plot, HeatMap)
        else bars(owned, room)
    )


def notes(owned: Sequence[Owned]) -> list[str]:
    """Return what the marks of a panel stand for, where they are there."""
    first = owned[0].plot
    if not isinstance(first, Chart):
        return [first.note] if first.note else []
    series = [one for each in owned for one in each.plot.series]
    marks = []
    if any(one.marked for one in series):
        marks.append(f"○ {first.marked}")
    if any(one.after for one in series):
        marks.append("◇ after the final norm")
    if any(math.isfinite(error) for one in series for error in one.errors):
        marks.append("bands and bars: ± one standard error")
    return [*marks, *([first.note] if first.note else [])]


def heat_map(one: Owned, room: Room, rivals: Sequence[Owned]) -> Json:
    """Return cells in colours of one scale for all maps of a unit, with rings and, where they fit, numbers."""
    part: HeatMap = one.plot
    if not any(math.isfinite(value) for line in part.values for value in line):
        return nothing(part.note or "no value")
    low, high = ends([other.plot for other in rivals if other.plot.unit == part.unit])
    named = not (part.square or part.upward)
    names: Json = {"labelLimit": room.panel / 3, "labelOverlap": not named}
    names["title"] = None if named else part.down
    place = {
        "x": category(
            "column", axis={"title": part.across or None, "labelOverlap": True}
        ),
        "y": category("row", axis=names, scale={"reverse": not named}),
    }
    key = {
        "orient": "right",
        "title": part.unit or None,
        "gradientThickness": 8,
        "tickCount": 4,
    }
    tooltips = [] if one.alone else [hover("run")]
    tooltips += [hover("row") | {"title": part.down or "row"}]
    tooltips += [hover("column") | {"title": f"{part.across or 'column'} across"}]
    cells = {
        "color": quantity("value", scale=_colors(part, low, high), legend=key),
        "tooltip": [*tooltips, hover("value", part.unit or "value")],
    }
    layers = [
        layer({"type": "rect", "width": WHOLE, "height": WHOLE}, VALUE, place | cells)
    ]
    if part.rings:
        hue = INK if part.diverging else RING
        ring = {
            "type": "point",
            "filled": False,
            "size": 50,
            "strokeWidth": 1.4,
            "color": hue,
        }
        layers.append(layer(ring, "datum.marked", place))
    if _fits(part, named, room.panel):
        layers.append(_printed(part, low, high, place))
    return {"layer": layers}


def _colors(part: HeatMap, low: float, high: float) -> Json:
    scale: Json = {"domain": [low, high], "clamp": True, "nice": False}
    if part.log and low > 0:
        scale["type"] = "log"
    if part.diverging:
        around = {"domain": [low, (low + high) / 2, high], "range": list(AROUND)}
        return scale | around | {"interpolate": "lab"}
    return scale | {"scheme": SCHEME, "reverse": part.reversed}


def digits(part: HeatMap) -> int:
    """Return the characters of the longest value that a map prints."""
    return max((len(text) for line in part.shown for text in line), default=4)


def _fits(part: HeatMap, named: bool, width: float) -> bool:
    """Return whether there is room for the values in the cells."""
    cell = (width - (width / 3 if named else 50)) / len(part.columns)
    few = len(part.columns) <= PRINTED and len(part.rows) <= (
        NAMED if named else PRINTED
    )
    return few and cell > 1.15 * DIGIT * digits(part)


def _printed(part: HeatMap, low: float, high: float, place: Json) -> Json:
    """Return the layer of the values in a map's cells, white on dark ones."""
    dark = f"datum.value {'>' if part.reversed else '<'} {low + 0.55 * (high - low)}"
    if part.diverging:
        dark = f"abs(datum.value - {(low + high) / 2}) > {0.3 * (high - low)}"
    # in both themes
    color = {"condition": {"test": dark, "value": "#ffffff"}, "value": "#1b1b1a"}
    text: Json = (
        {"field": "text"} if part.shown else {"field": "value", "format": ".2f"}
    )
    mark = {"type": "text", "style": "cell"}
    return {"name": PRINT, **layer(mark, VALUE, place | {"text": text, "color": color})}


def bars(owned: Sequence[Owned], room: Room) -> Json:
    """Return bars that lie, and their intervals; several results lie below each other."""
    part: Bars = owned[0].plot
    colors = {one.name: numbered(one.number).color for one in owned}
    side: Json = {
        "y": category("name", axis={"title": None, "labelLimit": room.panel / 3})
    }
    if len(colors) > 1:
        side["yOffset"] = {"field": "run"}
    bar = {
        "x": quantity("value", axis={"title": part.x.title, "grid": True}),
        "color": legend("run", colors, room.legend),
        "tooltip": [
            hover("name"),
            *(hover(name, name) for name in ("value", "low", "high")),
        ],
    }
    interval = {"x": quantity("low"), "x2": {"field": "high"}}
    return {
        "layer": [
            layer({"type": "bar", "opacity": 0.75}, VALUE, side | bar),
            layer({"type": "rule"}, "isValid(datum.low)", side | interval),
        ]
    }
