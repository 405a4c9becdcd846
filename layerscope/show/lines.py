"""Charts as Vega-Lite specifications: bands, lines, dots and rings over the rows of their series."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from layerscope.show.looks import (
    MARK,
    MUTED,
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
LINE: Json = {"type": "line"}
GUIDE: Json = LINE | {"strokeWidth": 0.8, "strokeDash": [2, 2], "color": MUTED}
DOT: Json = {"type": "point"}
POINT: Json = DOT | {"size": 40}
DIAMOND: Json = POINT | {"shape": "diamond", "fill": PAPER, "filled": False}
RING: Json = DOT | {"size": 60, "filled": False, "color": MARK, "strokeWidth": 1.6}
UNSEEN: Json = DOT | {"size": 140, "opacity": 0}
"""Larger than a dot, for a pointer to find."""
DEPTH = "percent && datum.depth ? 100 * datum.x / datum.depth : datum.x"


@dataclass(frozen=True)
class Room:
    """About how wide a panel is, and the legend below it, in points."""

    panel: float
    legend: float


@dataclass(frozen=True)
class Hues:
    """The encodings of colours, and with them of a line's dashes and a dot's shapes, with their legends."""

    color: Json
    lines: Json
    dots: Json


def chart(
    owned: Sequence[Owned], room: Room, rivals: Sequence[Owned], names: list[str]
) -> Json:
    """Return charts over each other; `rivals` are those that share the legend."""
    first: Chart = owned[0].plot
    shown = [row for one in owned for row in rows(one)]
    values = [row for row in shown if row["mark"] != "guide" and row["y"] is not None]
    if not values:
        return nothing("no value")
    x, y = _across(owned), _upright(first, values)
    hues = _hues(rivals, names, room.legend)
    clip = {"clip": True} if first.x.range or first.y.range else {}
    layers = [
        layer(mark | clip, test, encoding)
        for kind, flag, test, mark, encoding in _layers(x, y, hues, owned)
        if any(_is_in(row, kind, flag) for row in shown)
    ]
    return {"transform": _steps(first), "layer": layers}


def _layers(
    x: Json, y: Json, hues: Hues, owned: Sequence[Owned]
) -> list[tuple[str, str, str, Json, Json]]:
    """Return the layers of a chart from below: mark and column of its rows, the test for both, and how it is drawn."""
    at, pointed = (
        {"x": x, "y": y, "detail": {"field": "line"}},
        {"tooltip": _hover(owned)},
    )
    color = {"color": hues.color}
    band = at | color | {"y": y | {"field": "low"}, "y2": {"field": "high"}}
    sides = {"x": x | {"field": "start"}, "x2": {"field": "end"}, "y2": {"datum": 0}}
    area = {"type": "area", "opacity": BAND if len(owned) < MANY else BAND / 2}
    drawn: list[tuple[str, str, Json, Json]] = [
        ("guide", "", GUIDE, at),
        ("bars", "", {"type": "bar"}, at | sides | color | pointed),
        ("line", "error", area, band),
        ("line", "", LINE, at | hues.lines),
        ("line", "dot", DOT, at | hues.dots),
        ("points", "error", {"type": "rule"}, band),
        ("points", "", POINT, at | hues.dots),
        ("after", "", DIAMOND, at | color),
        ("", "marked", RING, at),
    ]
    layers = [
        (kind, flag, _test(kind, flag), mark, how) for kind, flag, mark, how in drawn
    ]
    seen = "datum.mark != 'guide' && datum.mark != 'bars'"
    return [*layers, ("", "", seen, UNSEEN, at | pointed)]


def _is_in(row: Row, kind: str, flag: str) -> bool:
    return (not kind or row["mark"] == kind) and (not flag or row.get(flag) is not None)


def _test(kind: str, flag: str) -> str:
    """Return what Vega tells the rows of a layer by."""
    tests = []
    if kind:
        tests.append(f"datum.mark == '{kind}'")
    if flag:
        tests.append(f"isValid(datum.{flag})")
    return " && ".join(tests)


def _hues(owned: Sequence[Owned], names: list[str], width: float) -> Hues:
    """Return how lines look: several results that lie over each other by result, else by series."""
    by_run = owned[0].plot.overlaid and not owned[0].alone
    series: dict[str, Look] = {}
    for one in owned:
        for each in one.plot.series:
            if each.mark != "guide":
                series.setdefault(plain(each.name), look(one, each, names))
    field, looks = "series", series
    if by_run:
        field, looks = "run", {one.name: numbered(one.number) for one in owned}
    unnamed = "" in names and owned[0].plot.overlaid
    color = legend(
        field, {name: each.color for name, each in looks.items()}, width, unnamed
    )
    shape = legend(
        field, {name: each.shape for name, each in looks.items()}, width, unnamed
    )
    dashes = {name: list(each.dash) for name, each in series.items()}
    if by_run:
        dash = legend("series", dashes, width, unnamed)
    # colours and shapes tell series apart; in their own order, as Vega-Lite joins scales of one order
    else:
        dash = legend("series", dict(reversed(dashes.items())), width) | {
            "legend": None
        }
    return Hues(
        color, {"color": color, "strokeDash": dash}, {"color": color, "shape": shape}
    )


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
            "columns": max(1, min(len(names), int(width / wide))), "labelExpr": "datum.label || 'by token'",
            "labelLimit": 0.85 * width, "symbolOpacity": 1, "values": names,
        }  # fmt: skip
    return {"field": field, "type": "nominal", "scale": scale, "legend": key}


def _steps(chart: Chart) -> list[Json]:
    """Return what is computed of each row: its place across, ends of bars and bands."""
    low = "datum.y - datum.error"
    steps = {
        "at": DEPTH, "start": "datum.at - 0.4", "end": "datum.at + 0.4",
        "low": f"max({low}, datum.y / 2)" if chart.y.log else low, "high": "datum.y + datum.error",
    }  # fmt: skip
    return [{"calculate": expression, "as": name} for name, expression in steps.items()]


def _hover(owned: Sequence[Owned]) -> list[Json]:
    """Return what a tooltip shows for a point: its series, and its numbers."""
    first: Chart = owned[0].plot
    series = [series for one in owned for series in one.plot.series]
    fields = [] if owned[0].alone else [hover("run")]
    if any(each.name for each in series):
        fields.append(hover("series"))
    fields += [
        hover("x", first.x.title),
        hover("y", first.y.title or first.unit or "value"),
    ]
    if any(each.errors for each in series):
        fields.append(hover("error", "±"))
    return fields


def _axis(axis: Axis, title: Any) -> Json:
    return {"title": title} | ({"tickMinStep": 1, "format": ",d"} if axis.whole else {})


def _across(owned: Sequence[Owned]) -> Json:
    """Return the horizontal axis; layers lie by percent of depth where the parameter says so."""
    axis: Axis = owned[0].plot.x
    depth = max(one.plot.x.depth or 0 for one in owned)
    scale: Json = {"zero": False, "nice": not axis.log}
    title: Any = axis.title
    if depth:
        scale |= {
            "domain": [0, {"expr": f"percent ? 100 : {depth}"}],
            "nice": False,
            "padding": 5,
        }
    elif axis.range:
        scale |= {"domain": list(axis.range), "nice": False}
    if depth and title == "layer":
        title = {"expr": "percent ? 'depth [%]' : 'layer'"}
    if axis.log:
        scale["type"] = "log"
    return quantity("at", scale=scale, axis=_axis(axis, title))


def _upright(chart: Chart, values: Sequence[Row]) -> Json:
    """Return the vertical axis: logarithmic, of a range that is given, or long enough that noise looks like noise."""
    axis = chart.y
    errors = [0.0 if axis.log else row.get("error") or 0.0 for row in values]
    low = min(row["y"] - error for row, error in zip(values, errors, strict=True))
    high = max(row["y"] + error for row, error in zip(values, errors, strict=True))
    has_bars = any(row["mark"] == "bars" for row in values)
    least = max(axis.least, 2 * NOTHING * (low == high == 0)) * axis.scale
    scale: Json = {"zero": has_bars, "nice": True}
    if axis.log and low > 0:
        scale = {"type": "log", "nice": False, "padding": 6}
    elif axis.range is not None:
        scale |= {"domain": list(axis.range), "nice": False}
    elif high - low < least and not has_bars:
        middle = (low + high) / 2
        scale |= {"domain": [middle - least / 2, middle + least / 2], "nice": False}
    title = axis.title or chart.unit or None
    return quantity("y", scale=scale, axis=_axis(axis, title), stack=None)
