"""Heat maps, box plots and bars as Vega-Lite specifications."""

import math
from collections.abc import Sequence

from layerscope.show.encoding import Json, category, layer, nothing, quantity, told
from layerscope.show.lines import DIGIT, Room, legend
from layerscope.show.looks import AROUND, INK, RING, Owned, numbered
from layerscope.show.plots import Bars, Boxes, HeatMap, ends

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
VALUE, FAR = "isValid(datum.value)", "isValid(datum.outlier)"
BOX = "isValid(datum.median)"
WIDE = {"band": 0.7}


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


def boxes(owned: Sequence[Owned], room: Room, rivals: Sequence[Owned]) -> Json:
    """Return boxes over whiskers, their medians, and the samples furthest away."""
    part: Boxes = owned[0].plot
    color = numbered(0 if owned[0].alone else owned[0].number).color
    shown = [box for one in rivals if one.plot.y == part.y for box in one.plot.boxes]
    reach = [value for box in shown for value in (*box.whiskers, *dict(box.outliers).values())]
    upright = {
        "scale": {"domain": [min(reach), max(reach)], "nice": True},
        "axis": {"title": part.y},
    }
    x = {"x": category("name", axis={"title": part.x, "labelOverlap": True})}
    numbers = [told(name, name) for name in ("low", "q1", "median", "q3", "high", "mean")]

    def between(low: str, high: str) -> Json:
        return x | {"y": quantity(low, **upright), "y2": {"field": high}}

    box = {"type": "bar", "color": color, "fillOpacity": 0.35, "stroke": color, "width": WIDE}
    line = {"type": "bar", "stroke": INK, "strokeWidth": 1.4, "width": WIDE}
    dot = {"type": "point", "color": color, "size": 5, "opacity": 0.6}
    far = {"y": quantity("outlier", **upright), "tooltip": [told("point"), told("outlier", part.y)]}
    return {
        "layer": [
            layer({"type": "rule", "color": color}, BOX, between("low", "high")),
            layer(box, BOX, between("q1", "q3") | {"tooltip": numbers}),
            layer(line, BOX, between("median", "median")),
            layer(dot, FAR, x | far),
        ]
    }


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
