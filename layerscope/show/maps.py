"""Heat maps and bars as Vega-Lite specifications."""

import math
from collections.abc import Sequence

from layerscope.show.encoding import Json, category, layer, nothing, quantity, told
from layerscope.show.lines import DIGIT, Room, legend
from layerscope.show.looks import AROUND, INK, RING, Owned, numbered
from layerscope.show.plots import Bars, HeatMap, ends

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


def heat_map(owned: Sequence[Owned], room: Room, rivals: Sequence[Owned]) -> Json:
    """Return cells in colours of one scale for all maps of a unit, with rings and, where they fit, numbers."""
    part: HeatMap = owned[0].plot
    if not any(math.isfinite(value) for line in part.values for value in line):
        return nothing(part.note or "no value")
    low, high = ends([one.plot for one in rivals if one.plot.unit == part.unit])
    named = not (part.square or part.upward)
    names = {
        "title": None if named else part.down,
        "labelLimit": room.panel / 3,
        "labelOverlap": not named,
    }
    place = {
        "x": category("column", axis={"title": part.across or None, "labelOverlap": True}),
        "y": category("row", axis=names, scale={"reverse": not named}),
    }
    key = {"orient": "right", "title": part.unit or None, "gradientThickness": 8, "tickCount": 4}
    cells = {
        "color": quantity("value", scale=_colors(part, low, high), legend=key),
        "tooltip": _cell(owned[0]),
    }
    layers = [layer({"type": "rect", "width": WHOLE, "height": WHOLE}, VALUE, place | cells)]
    if part.rings:
        hue = INK if part.diverging else RING
        ring = {"type": "point", "filled": False, "size": 50, "strokeWidth": 1.4, "color": hue}
        layers.append(layer(ring, "datum.marked", place))
    if _fits(part, named, room.panel):
        layers.append(_printed(part, low, high, place))
    return {"layer": layers}


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


def _cell(one: Owned) -> list[Json]:
    part: HeatMap = one.plot
    whose = [] if one.alone else [told("run")]
    if part.texts:
        return [*whose, told("point")]
    named = told("row") | {"title": part.down or "row"}
    across = told("column") | {"title": f"{part.across or 'column'} across"}
    return [*whose, named, across, told("value", part.unit or "value")]


def _fits(part: HeatMap, named: bool, width: float) -> bool:
    """Return whether there is room for the values in the cells."""
    digits = max((len(text) for line in part.shown for text in line), default=4)
    cell = (width - (width / 3 if named else 50)) / len(part.columns)
    few = len(part.columns) <= PRINTED and len(part.rows) <= (NAMED if named else PRINTED)
    return few and cell > 1.15 * DIGIT * digits


def _printed(part: HeatMap, low: float, high: float, place: Json) -> Json:
    """Return the layer of the values in a map's cells, white on dark ones."""
    dark = f"datum.value {'>' if part.reversed else '<'} {low + 0.55 * (high - low)}"
    if part.diverging:
        dark = f"abs(datum.value - {(low + high) / 2}) > {0.3 * (high - low)}"
    color = {"condition": {"test": dark, "value": "#ffffff"}, "value": "#1b1b1a"}  # in both themes
    text: Json = {"field": "text"} if part.shown else {"field": "value", "format": ".2f"}
    mark = {"type": "text", "style": "cell"}
    return {"name": PRINT, **layer(mark, VALUE, place | {"text": text, "color": color})}


def bars(owned: Sequence[Owned], room: Room, rivals: Sequence[Owned]) -> Json:
    """Return bars that lie, and their intervals; several results lie below each other."""
    part: Bars = owned[0].plot
    colors = {one.name: numbered(one.number).color for one in owned}
    across: Json = {"axis": {"title": part.x.title, "grid": True}}
    if part.x.range:
        across["scale"] = {"domain": list(part.x.range)}
    side: Json = {"y": category("name", axis={"title": None, "labelLimit": room.panel / 3})}
    if len(colors) > 1:
        side["yOffset"] = {"field": "run"}
    numbers = [told("name"), *(told(name, name) for name in ("value", "low", "high"))]
    bar = {
        "x": quantity("value", **across),
        "color": legend("run", colors, room.legend),
        "tooltip": numbers,
    }
    ends_of = {"x": quantity("low", **across), "x2": {"field": "high"}}
    return {
        "layer": [
            layer({"type": "bar", "opacity": 0.75}, VALUE, side | bar),
            layer({"type": "rule"}, "isValid(datum.low)", side | ends_of),
        ]
    }
