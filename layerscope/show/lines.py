"""Charts as Vega-Lite specifications: bands, lines, dots and rings over the rows of their series."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pandas as pd

from layerscope.show.looks import (
    MARK,
    PAPER,
    Json,
    Look,
    Owned,
    hover,
    layer,
    look,
    nothing,
    numbered,
    quantity,
)
from layerscope.show.plain import plain
from layerscope.show.plots import NOTHING, Axis, Chart
from layerscope.show.rows import Row, rows

BAND = 0.18
MANY = 5
"""Results from which on bands are fainter, as they lie on each other."""
DIGIT = 4.6
"""Points that a character of a printed value takes."""
DOT: Json = {"type": "point"}
DIAMOND: Json = {"size": 40, "shape": "diamond", "fill": PAPER, "filled": False}
RING: Json = {"size": 60, "filled": False, "color": MARK, "strokeWidth": 1.6}
UNSEEN: Json = {"size": 140, "opacity": 0}
"""Larger than a dot, for a pointer to find."""
DEPTH = "percent && datum.depth ? 100 * datum.x / datum.depth : datum.x"


@dataclass(frozen=True)
class Room:
    """About how wide a panel is, and the legend below it, in points."""

    panel: float
    legend: float


@dataclass(frozen=True)
class Drawn:
    """A layer of a chart: the mark or the column that its rows have, or both, and how these are drawn."""

    mark: Json
    encoding: Json
    kind: str = ""
    column: str = ""

    def has(self, row: Row) -> bool:
        """Return whether the layer draws a row."""
        if self.column and row.get(self.column) is None:
            return False
        return self.kind in ("", row["mark"])

    def json(self) -> Json:
        """Return the layer as a specification has it."""
        tests = []
        if self.kind:
            tests.append(f"datum.mark == '{self.kind}'")
        if self.column:
            tests.append(f"isValid(datum.{self.column})")
        return layer(self.mark, " && ".join(tests), self.encoding)


def chart(
    owned: Sequence[Owned], room: Room, rivals: Sequence[Owned], names: list[str]
) -> Json:
    """Return charts over each other; `rivals` are those that share the legend."""
    first: Chart = owned[0].plot
    shown = [row for one in owned for row in rows(one)]
    values = [row for row in shown if row["y"] is not None]
    if not values:
        return nothing("no value")
    x = _across(owned)
    y = _upright(first, values)
    low = "datum.y - datum.error"
    if first.y.log:
        low = f"max({low}, datum.y / 2)"
    # of each row: its place across, and the ends of its band
    steps = [
        {"calculate": DEPTH, "as": "at"},
        {"calculate": low, "as": "low"},
        {"calculate": "datum.y + datum.error", "as": "high"},
    ]
    layers = []
    for drawn in _layers(x, y, owned, _hues(rivals, names, room.legend)):
        if first.x.range or first.y.range:
            drawn.mark["clip"] = True
        if any(map(drawn.has, shown)):
            layers.append(drawn.json())
    return {"transform": steps, "layer": layers}


def _layers(x: Json, y: Json, owned: Sequence[Owned], hues: Json) -> list[Drawn]:
    """Return the layers of a chart from below; `hues` are the encodings of colours, dashes and shapes."""
    at: Json = {"x": x, "y": y, "detail": {"field": "line"}}
    color = at | {"color": hues["color"]}
    line = color | {"strokeDash": hues["strokeDash"]}
    dot = color | {"shape": hues["shape"]}
    band = color | {"y": y | {"field": "low"}, "y2": {"field": "high"}}
    # where results lie on each other bands are fainter
    opacity = BAND / (1 + (len(owned) >= MANY))
    area = {"type": "area", "opacity": opacity}
    return [
        Drawn(area, band, "line", "error"),
        Drawn({"type": "line"}, line, "line"),
        Drawn({**DOT}, dot, "line", "dot"),
        Drawn({"type": "rule"}, band, "points", "error"),
        Drawn(DOT | {"size": 40}, dot, "points"),
        Drawn(DOT | DIAMOND, color, "after"),
        Drawn(DOT | RING, at, "", "marked"),
        Drawn(DOT | UNSEEN, at | {"tooltip": [*_hover(owned)]}, column="y"),
    ]


def _hues(owned: Sequence[Owned], names: list[str], width: float) -> Json:
    """Return how lines look: several results that lie over each other by result, else by series."""
    overlaid = owned[0].plot.overlaid
    series: dict[str, Look] = {}
    for one in owned:
        for each in one.plot.series:
            series.setdefault(plain(each.name), look(one, each, names))
    unnamed = "" in names and overlaid
    dashes = {name: list(each.dash) for name, each in series.items()}
    field = "run"
    looks = {one.name: numbered(one.number) for one in owned}
    dash = legend("series", dashes, width, unnamed)
    if owned[0].alone or not overlaid:
        field = "series"
        looks = series
        # colours and shapes tell series apart; in their own order, as Vega-Lite joins scales of one order
        dash = legend("series", dict(reversed(dashes.items())), width)
        dash["legend"] = None
    colors = {name: each.color for name, each in looks.items()}
    shapes = {name: each.shape for name, each in looks.items()}
    return {
        "color": legend(field, colors, width, unnamed),
        "shape": legend(field, shapes, width, unnamed),
        "strokeDash": dash,
    }


def legend(
    field: str, looks: dict[str, Any], width: float, unnamed: bool = True
) -> Json:
    """Return the encoding of names by looks; its legend has as many columns as fit a width in points."""
    scale = {"domain": list(looks), "range": list(looks.values())}
    names = [name for name in looks if name or unnamed]
    key = None
    if len(names) > 1:
        wide = DIGIT * max(map(len, names)) + 24
        key = {
            "columns": max(1, min(len(names), int(width / wide))),
            "labelExpr": "datum.label || 'by token'",
            "labelLimit": 0.85 * width,
            "symbolOpacity": 1,
            "values": names,
        }
    return {"field": field, "type": "nominal", "scale": scale, "legend": key}


def _hover(owned: Sequence[Owned]) -> Iterator[Json]:
    """Yield what a tooltip shows for a point: its series, and its numbers."""
    first: Chart = owned[0].plot
    series = [*chain.from_iterable(one.plot.series for one in owned)]
    if not owned[0].alone:
        yield hover("run")
    if any(each.name for each in series):
        yield hover("series")
    yield hover("x", first.x.title)
    yield hover("y", first.y.title or first.unit or "value")
    if any(each.errors for each in series):
        yield hover("error", "±")


def _axis(axis: Axis, title: Any) -> Json:
    if axis.whole:
        return {"title": title, "tickMinStep": 1, "format": ",d"}
    return {"title": title}


def _across(owned: Sequence[Owned]) -> Json:
    """Return the horizontal axis; layers lie by percent of depth where the parameter says so."""
    axis: Axis = owned[0].plot.x
    depth = max(one.plot.x.depth or 0 for one in owned)
    scale: Json = {"zero": False, "nice": not axis.log}
    title: Any = axis.title
    if depth:
        whole = {"expr": f"percent ? 100 : {depth}"}
        scale |= {"domain": [0, whole], "nice": False, "padding": 5}
        if title == "layer":
            title = {"expr": "percent ? 'depth [%]' : 'layer'"}
    elif axis.range:
        scale |= {"domain": list(axis.range), "nice": False}
    if axis.log:
        scale["type"] = "log"
    return quantity("at", scale=scale, axis=_axis(axis, title))


def _upright(chart: Chart, values: Sequence[Row]) -> Json:
    """Return the vertical axis: logarithmic, of a range that is given, or long enough that noise looks like noise."""
    axis = chart.y
    frame = pd.DataFrame(values)
    errors: Any = 0.0
    if "error" in frame and not axis.log:
        errors = frame["error"].astype(float).fillna(0.0)
    low = float((frame["y"] - errors).min())
    high = float((frame["y"] + errors).max())
    least = axis.least
    if low == high == 0:
        least = max(least, 2 * NOTHING)
    least *= axis.scale
    scale: Json = {"zero": False, "nice": True}
    if axis.log and low > 0:
        scale = {"type": "log", "nice": False, "padding": 6}
    elif axis.range is not None:
        scale |= {"domain": list(axis.range), "nice": False}
    elif high - low < least:
        middle = (low + high) / 2
        scale |= {"domain": [middle - least / 2, middle + least / 2], "nice": False}
    title = axis.title or chart.unit or None
    return quantity("y", scale=scale, axis=_axis(axis, title), stack=None)
