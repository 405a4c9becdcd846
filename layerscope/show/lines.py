"""Charts as Vega-Lite specifications: bands, lines, dots, rings and labels over the rows of their series."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from layerscope.show.encoding import Json, layer, nothing, quantity, told
from layerscope.show.looks import MARK, MUTED, PALE, PAPER, Look, Owned, look, numbered
from layerscope.show.plots import NOTHING, Axis, Chart, Series
from layerscope.show.rows import Row, label, points

BAND = 0.18
MANY = 5
"""Results from which on bands are fainter, as they lie on each other."""
MARKED = 26
"""Lines of more points than this carry about this many dots."""
DIGIT = 4.6
"""Points that a character of a printed value takes."""
ASIDE = ("guide", "over")
"""Marks that are no values of the chart."""
LINE: Json = {"type": "line"}
GUIDE: Json = LINE | {"strokeWidth": 0.8, "strokeDash": [2, 2], "color": MUTED}
OVER: Json = LINE | {"strokeWidth": 1.5, "strokeDash": [1, 3]}
DOT: Json = {"type": "point"}
POINT: Json = DOT | {"size": 40}
DIAMOND: Json = POINT | {"shape": "diamond", "fill": PAPER, "filled": False}
RING: Json = DOT | {"size": 60, "filled": False, "color": MARK, "strokeWidth": 1.6}
UNSEEN: Json = DOT | {"size": 140, "opacity": 0}
"""Larger than a dot, for a pointer to find."""
ACROSS: Json = {"type": "rule", "strokeDash": [4, 3], "color": MARK, "strokeWidth": 1.4}
NAME: Json = {"type": "text", "align": "left", "baseline": "top", "dx": 4, "color": MARK}
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


def chart_rows(one: Owned) -> Iterator[Row]:
    """Yield the rows of a chart with what its layers need to know of each."""
    for number, series in enumerate(one.plot.series):
        depth = series.depth or one.plot.x.depth
        step = -(-len(series.x) // MARKED)
        for i, row in enumerate(points(one.plot, series)):
            row |= {"run": one.name, "line": f"{one.number}.{number}", "mark": _kind(series, i)}
            if depth:
                row["depth"] = depth
            if (i + one.number) % step == 0:
                row["dot"] = True
            yield row


def _kind(series: Series, point: int) -> str:
    if series.right:
        return "over"
    return "after" if point in series.after else series.mark


def chart(owned: Sequence[Owned], room: Room, rivals: Sequence[Owned], names: list[str]) -> Json:
    """Return charts over each other; `rivals` share the legend, and the axes where they stand side by side."""
    first: Chart = owned[0].plot
    rows = _all_rows(owned)
    if not _shown(rows):
        return nothing("no value")
    alike = [one for one in rivals if one.plot.title == first.title and not first.overlaid]
    reach = _all_rows(alike or owned)
    x, y = _across(owned, reach if len(alike) > len(owned) else []), _upright(first, reach, alike)
    hues = _looks(rivals, names, room.legend)
    clip = {"clip": True} if first.x.range or first.y.range else {}
    layers = [
        layer(mark | clip, _test(kind, flag), encoding)
        for kind, flag, mark, encoding in _layers(x, y, hues, owned)
        if any(_is_in(row, kind, flag) for row in rows)
    ]
    layers += [line for value, name in first.lines for line in _line(value, name, x)]
    made: Json = {"transform": _steps(first), "layer": layers}
    return _overlaid(made, x, hues.color) if any(row["mark"] == "over" for row in rows) else made


def _all_rows(owned: Sequence[Owned]) -> list[Row]:
    return [row for one in owned for row in chart_rows(one)]


def _shown(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that are values of a chart."""
    return [row for row in rows if row["mark"] not in ASIDE and row["y"] is not None]


def _layers(
    x: Json, y: Json, hues: Hues, owned: Sequence[Owned]
) -> list[tuple[str, str, Json, Json]]:
    """Return the layers of a chart from below: the mark and the column that a row of it has, and how it is drawn."""
    at, pointed = {"x": x, "y": y, "detail": {"field": "line"}}, {"tooltip": _told(owned)}
    color = {"color": hues.color}
    band = at | color | {"y": y | {"field": "low"}, "y2": {"field": "high"}}
    sides = {"x": x | {"field": "start"}, "x2": {"field": "end"}, "y2": {"datum": 0}}
    pale = {"color": {"condition": {"test": "datum.pale", "value": PALE}, **hues.color}}
    area = {"type": "area", "opacity": BAND if len(owned) < MANY else BAND / 2}
    return [
        ("guide", "", GUIDE, at),
        ("level", "", LINE, at | hues.lines | pointed),
        ("bars", "", {"type": "bar"}, at | sides | pale | pointed),
        ("line", "error", area, band),
        ("line", "", LINE, at | hues.lines),
        ("line", "dot", DOT, at | hues.dots),
        ("points", "error", {"type": "rule"}, band),
        ("points", "", POINT, at | hues.dots),
        ("after", "", DIAMOND, at | color),
        ("", "marked", RING, at),
        ("", "label", {"type": "text", "dy": -8}, at | {"text": {"field": "label"}}),
        ("line", "", UNSEEN, at | pointed),
        ("points", "", UNSEEN, at | pointed),
        ("after", "", UNSEEN, at | pointed),
    ]


def _is_in(row: Row, kind: str, flag: str) -> bool:
    return (not kind or row["mark"] == kind) and (not flag or row.get(flag) is not None)


def _test(kind: str, flag: str) -> str:
    """Return what Vega tells the rows of a layer by."""
    tests = [f"datum.mark == '{kind}'"] * bool(kind) + [f"isValid(datum.{flag})"] * bool(flag)
    return " && ".join(tests)


def _looks(owned: Sequence[Owned], names: list[str], width: float) -> Hues:
    """Return how lines look: several results that lie over each other by result, else by series."""
    by_run = owned[0].plot.overlaid and not owned[0].alone
    series: dict[str, Look] = {}
    for one in owned:
        for each in one.plot.series:
            if each.mark != "guide":
                series.setdefault(label(each), look(one, each, names))
    field, looks = "series", series
    if by_run:
        field, looks = "run", {one.name: numbered(one.number) for one in owned}
    unnamed = "" in names and owned[0].plot.overlaid
    color = legend(field, {name: each.color for name, each in looks.items()}, width, unnamed)
    shape = legend(field, {name: each.shape for name, each in looks.items()}, width, unnamed)
    dashes = {name: list(each.dash) for name, each in series.items()}
    if by_run:
        dash = legend("series", dashes, width, unnamed)
    else:  # colours and shapes tell series apart; in their own order, as Vega-Lite joins scales of one order
        dash = legend("series", dict(reversed(dashes.items())), width) | {"legend": None}
    return Hues(color, {"color": color, "strokeDash": dash}, {"color": color, "shape": shape})


def legend(field: str, looks: dict[str, Any], width: float, unnamed: bool = True) -> Json:
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


def _told(owned: Sequence[Owned]) -> list[Json]:
    """Return what is told of a point: whose it is, and its numbers, or its own words."""
    first: Chart = owned[0].plot
    series = [series for one in owned for series in one.plot.series]
    found = [] if owned[0].alone else [told("run")]
    if any(label(each) for each in series):
        found.append(told("series"))
    if any(each.texts for each in series):
        return [*found, told("point")]
    found += [told("x", first.x.title), told("y", first.y.title or first.unit or "value")]
    if any(each.errors for each in series):
        found.append(told("error", "±"))
    return found


def _axis(axis: Axis, title: Any) -> Json:
    return {"title": title} | ({"tickMinStep": 1, "format": ",d"} if axis.whole else {})


def _across(owned: Sequence[Owned], rivals: Sequence[Row]) -> Json:
    """Return the horizontal axis; layers lie by percent of depth where the parameter says so."""
    axis: Axis = owned[0].plot.x
    depth = max(one.plot.x.depth or 0 for one in owned)
    scale: Json = {"zero": False, "nice": not axis.log}
    title: Any = axis.title
    if depth:
        scale |= {"domain": [0, {"expr": f"percent ? 100 : {depth}"}], "nice": False, "padding": 5}
    elif axis.range:
        scale |= {"domain": list(axis.range), "nice": False}
    elif rivals:
        reach = [row["x"] for row in rivals if row["x"] is not None]
        scale["domain"] = [min(reach), max(reach)]
    if depth and title == "layer":
        title = {"expr": "percent ? 'depth [%]' : 'layer'"}
    if axis.log:
        scale["type"] = "log"
    return quantity("at", scale=scale, axis=_axis(axis, title))


def _upright(chart: Chart, rows: Sequence[Row], rivals: Sequence[Owned]) -> Json:
    """Return the vertical axis: logarithmic, of a range that is given, or long enough that noise looks like noise."""
    axis = chart.y
    low, high = _reach(rows, axis.log)
    least = max(axis.least, 2 * NOTHING * (low == high == 0)) * axis.scale
    scale: Json = {"zero": any(row["mark"] == "bars" for row in rows), "nice": True}
    if axis.log and low > 0:
        scale = {"type": "log", "nice": False, "padding": 6}
    elif axis.range is not None:
        scale |= {"domain": list(axis.range), "nice": False}
    elif high - low < least:
        middle = (low + high) / 2
        scale |= {"domain": [middle - least / 2, middle + least / 2], "nice": False}
    elif len(rivals) > 1:
        scale["domain"] = [low, high]
    return quantity(
        "y", scale=scale, axis=_axis(axis, axis.title or chart.unit or None), stack=None
    )


def _reach(rows: Sequence[Row], log: bool) -> tuple[float, float]:
    """Return the least and the most that charts show, with their bands, and with nothing below bars."""
    shown = _shown(rows)
    errors = [0.0 if log else row.get("error") or 0.0 for row in shown]
    low = min(row["y"] - error for row, error in zip(shown, errors, strict=True))
    high = max(row["y"] + error for row, error in zip(shown, errors, strict=True))
    return (min(low, 0.0) if any(row["mark"] == "bars" for row in shown) else low), high


def _overlaid(made: Json, x: Json, color: Json) -> Json:
    """Return a chart with dotted lines over it, on a scale of their own at the right."""
    axis = {"orient": "right", "grid": False, "title": None, "labelColor": MUTED}
    place = {
        "x": x,
        "y": quantity("y", scale={"zero": False}, axis=axis),
        "detail": {"field": "line"},
    }
    over = layer(OVER, "datum.mark == 'over'", place | {"color": color})
    return {
        "transform": made["transform"],
        "layer": [{"layer": made["layer"]}, {"name": "overlay", **over}],
        "resolve": {"scale": {"y": "independent"}},
    }


def _line(value: float, name: str, x: Json) -> list[Json]:
    """Return a number across a chart, with its name."""
    data = {"values": [{"at": value, "name": name}]}
    named = {"x": x, "y": {"value": 0}, "text": {"field": "name"}}
    return [
        {"data": data, "mark": ACROSS, "encoding": {"x": x}},
        {"data": data, "mark": NAME, "encoding": named},
    ]
