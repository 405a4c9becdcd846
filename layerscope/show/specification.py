"""A plot as a Vega-Lite specification, which page, notebook and figure share.

Each kind of plot is a few layers over the rows behind it: a chart is bands, lines, dots, rings and
labels; a heat map cells, rings and numbers. Texts from data are values of rows or of scales, never a
part of an expression.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from layerscope.show.looks import (
    AROUND,
    INK,
    MARK,
    MUTED,
    PALE,
    PAPER,
    RING,
    Look,
    Owned,
    look,
    numbered,
)
from layerscope.show.plots import NOTHING, Axis, Bars, Boxes, Chart, HeatMap, Plot, ends
from layerscope.show.rows import Row, label, points, rows

Json = dict[str, Any]
BAND = 0.18
MARKED = 26
"""Lines of more points than this carry about this many dots."""
PRINTED = 16
"""Maps of at most this many columns print their values, where they fit."""
DIGIT = 4.6
"""Points that a character of a printed value takes."""
MANY = 5
"""Results from which on bands are fainter, as they lie on each other."""
ASIDE = ("guide", "over")
"""Marks that are no values of the chart."""
GUIDE: Json = {"type": "line", "strokeWidth": 0.8, "strokeDash": [2, 2], "color": MUTED}
LINE: Json = {"type": "line"}
AREA: Json = {"type": "area"}
BAR: Json = {"type": "bar"}
RULE: Json = {"type": "rule"}
DOT: Json = {"type": "point"}
POINT: Json = {"type": "point", "size": 40}
DIAMOND: Json = {"type": "point", "shape": "diamond", "size": 40, "fill": PAPER, "filled": False}
CIRCLE: Json = {
    "type": "point", "shape": "circle", "size": 60, "filled": False, "color": MARK, "strokeWidth": 1.6,
}  # fmt: skip
LABEL: Json = {"type": "text", "dy": -8}
UNSEEN: Json = {"type": "point", "opacity": 0, "size": 140}
"""Larger than a dot, for a pointer to find."""
LOW = "datum.y - datum.error"
WHOLE = {"band": 1.04}
"""Cells of a map overlap by a little, so that no seam is seen between them."""
PRINT = "printed"
"""The layer of values in the cells of a map, which a page leaves out where it is too narrow."""
SCHEME = "cividis"
"""Its brightness rises evenly: the same map in grey."""


@dataclass(frozen=True)
class Hues:
    """The encodings of colours, and with them of a line's dashes and a dot's shapes, with their legends."""

    color: Json
    lines: Json
    dots: Json


@dataclass(frozen=True)
class Room:
    """About how wide a panel is, and the legend below it, in points."""

    panel: float
    legend: float


def view(owned: Sequence[Owned], names: list[str], room: Room, rivals: Sequence[Owned]) -> Json:
    """Return the specification of plots in one panel, without its rows.

    `names` are the series of all charts; `rivals` are the plots beside it, whose axes it shares.
    """
    made: Json = VIEWS[type(owned[0].plot)](owned, names, room, rivals)
    return made


def drawn(one: Owned) -> list[Row]:
    """Return the rows of a plot with what its layers need to know of each."""
    if not isinstance(one.plot, Chart):
        return [{"run": one.name, **row} for row in rows(one.plot)]
    found = []
    for number, series in enumerate(one.plot.series):
        depth = series.depth or one.plot.x.depth
        step = -(-len(series.x) // MARKED) if series.x else 1
        for i, row in enumerate(points(one.plot, series)):
            row |= {"run": one.name, "line": f"{one.number}.{number}"}
            row["mark"] = "after" if i in series.after else "over" if series.right else series.mark
            if depth:
                row["depth"] = depth
            if (i + one.number) % step == 0:
                row["dot"] = True
            found.append(row)
    return found


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


def _chart(owned: Sequence[Owned], names: list[str], room: Room, rivals: Sequence[Owned]) -> Json:
    first: Chart = owned[0].plot
    known = [row for one in owned for row in drawn(one)]
    if not any(row["y"] is not None and row["mark"] not in ASIDE for row in known):
        return {"mark": {"type": "text", "text": "no value", "color": MUTED}}
    alike = [one for one in rivals if one.plot.title == first.title and not first.overlaid]
    x, y = _across(owned, alike), _upright(owned, alike)
    clip = {"clip": True} if first.x.range or first.y.range else {}
    layers = [
        _layer(mark | clip, _test(kind, flag), encoding)
        for kind, flag, mark, encoding in _layers(x, y, _looks(rivals, names, room.legend), owned)
        if any(_is_in(row, kind, flag) for row in known)
    ]
    layers += [layer for value, name in first.lines for layer in _line(value, name, x)]
    made: Json = {"transform": _steps(first), "layer": layers}
    over = any(row["mark"] == "over" for row in known)
    return (
        _overlaid(made, x, _looks(rivals, names, room.legend).color, _told(owned)) if over else made
    )


def _layers(
    x: Json, y: Json, hues: Hues, owned: Sequence[Owned]
) -> list[tuple[str, str, Json, Json]]:
    """Return the layers of a chart from below: the mark and the column that a row of it has, and how it is drawn."""
    at, told = {"x": x, "y": y, "detail": {"field": "line"}}, {"tooltip": _told(owned)}
    band = at | {"y": y | {"field": "low"}, "y2": {"field": "high"}, "color": hues.color}
    sides = {"x": x | {"field": "start"}, "x2": {"field": "end"}, "y2": {"datum": 0}}
    pale = {"color": {"condition": {"test": "datum.pale", "value": PALE}, **hues.color}}
    area = AREA | {"opacity": BAND if len(owned) < MANY else BAND / 2}
    return [
        ("guide", "", GUIDE, at),
        ("level", "", LINE, at | hues.lines | told),
        ("bars", "", BAR, at | sides | pale | told),
        ("line", "error", area, band),
        ("line", "", LINE, at | hues.lines),
        ("line", "dot", DOT, at | hues.dots),
        ("points", "error", RULE, band),
        ("points", "", POINT, at | hues.dots),
        ("after", "", DIAMOND, at | {"color": hues.color}),
        ("", "marked", CIRCLE, at),
        ("", "label", LABEL, at | {"text": {"field": "label"}}),
        ("line", "", UNSEEN, at | told),
        ("points", "", UNSEEN, at | told),
        ("after", "", UNSEEN, at | told),
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
    runs = {one.name: numbered(one.number) for one in owned}
    field, looks = ("run", runs) if by_run else ("series", series)
    unnamed = "" in names and owned[0].plot.overlaid
    color = _scale(field, {name: each.color for name, each in looks.items()}, width, unnamed)
    shape = _scale(field, {name: each.shape for name, each in looks.items()}, width, unnamed)
    dashes = {name: list(each.dash) for name, each in reversed(series.items())}
    dash = _scale("series", dashes, width, unnamed)
    if (
        not by_run
    ):  # colours and shapes tell series apart there; Vega-Lite merges legends of one order
        dash["legend"] = None
    return Hues(color, {"color": color, "strokeDash": dash}, {"color": color, "shape": shape})


def _scale(field: str, looks: dict[str, Any], width: float, unnamed: bool) -> Json:
    scale = {"domain": list(looks), "range": list(looks.values())}
    told = [name for name in looks if name or unnamed]
    legend = legend_of(told, width) if len(told) > 1 else None
    return {"field": field, "type": "nominal", "scale": scale, "legend": legend}


def legend_of(names: Sequence[str], width: float) -> Json:
    """Return the settings of a legend of these names, in as many columns as fit a width in points."""
    longest = max(map(len, names))
    columns = max(1, min(len(names), int(width / (DIGIT * longest + 24))))
    return {
        "columns": columns, "labelExpr": "datum.label || 'by token'", "labelLimit": 0.85 * width,
        "symbolOpacity": 1, "values": list(names),
    }  # fmt: skip


def _layer(mark: Json, test: str, encoding: Json) -> Json:
    return {"transform": [{"filter": test}], "mark": mark, "encoding": encoding}


def _steps(chart: Chart) -> list[Json]:
    """Return what is computed of each row: its place across, ends of bars and bands."""
    depth = "percent && datum.depth ? 100 * datum.x / datum.depth : datum.x"
    floor = f"max({LOW}, datum.y / 2)" if chart.y.log else LOW
    steps = {
        "at": depth, "start": "datum.at - 0.4", "end": "datum.at + 0.4",
        "low": floor, "high": "datum.y + datum.error",
    }  # fmt: skip
    return [{"calculate": expression, "as": name} for name, expression in steps.items()]


def _told(owned: Sequence[Owned]) -> list[Json]:
    """Return what is told of a point: whose it is, and its numbers, or its own words."""
    first: Chart = owned[0].plot
    series = [series for one in owned for series in one.plot.series]
    whose = [] if owned[0].alone else ["run"]
    if any(label(each) for each in series):
        whose.append("series")
    found: list[Json] = [{"field": name, "type": "nominal"} for name in whose]
    if any(each.texts for each in series):
        return [*found, {"field": "point", "type": "nominal", "title": " "}]
    number = {"type": "quantitative", "format": ".4~r"}
    found.append({"field": "x", "title": first.x.title, **number})
    found.append({"field": "y", "title": first.y.title or first.unit or "value", **number})
    if any(each.errors for each in series):
        found.append({"field": "error", "title": "±", "type": "quantitative", "format": ".2~r"})
    return found


def _across(owned: Sequence[Owned], rivals: Sequence[Owned]) -> Json:
    """Return the horizontal axis; layers lie by percent of depth where the parameter says so."""
    axis: Axis = owned[0].plot.x
    depth = max(one.plot.x.depth or 0 for one in owned)
    scale: Json = {"zero": False}
    title: Any = axis.title
    settings: Json = {"tickMinStep": 1, "format": ",d"} if axis.whole else {}
    if depth:
        scale |= {"domain": [0, {"expr": f"percent ? 100 : {depth}"}], "nice": False, "padding": 5}
        title = (
            {"expr": f"percent ? 'depth [%]' : {axis.title!r}"} if axis.title == "layer" else title
        )
    elif axis.range:
        scale |= {"domain": list(axis.range), "nice": False}
    elif len(rivals) > len(owned):
        reach = [x for one in rivals for s in one.plot.series for x in s.x if math.isfinite(x)]
        scale |= {"domain": [min(reach), max(reach)], "nice": True}
    if axis.log:
        scale |= {"type": "log", "nice": False}
    return {
        "field": "at",
        "type": "quantitative",
        "scale": scale,
        "axis": {"title": title, **settings},
    }


def _upright(owned: Sequence[Owned], rivals: Sequence[Owned]) -> Json:
    """Return the vertical axis: logarithmic, of a range that is given, or long enough that noise looks like noise."""
    chart: Chart = owned[0].plot
    axis, (low, high) = chart.y, _reach(owned)
    scale: Json = {"zero": any(s.mark == "bars" for s in chart.series), "nice": True}
    least = axis.least * axis.scale
    if axis.log and low > 0:
        scale = {"type": "log", "nice": False, "padding": 6}
    elif axis.range is not None:
        scale |= {"domain": list(axis.range), "nice": False}
    elif low == high == 0:
        scale["domain"] = [-NOTHING * axis.scale, NOTHING * axis.scale]
    elif high - low < least:
        middle = (low + high) / 2
        scale |= {"domain": [middle - least / 2, middle + least / 2], "nice": False}
    elif len(rivals) > len(owned):
        scale["domain"] = _reach(rivals)
    settings = {"tickMinStep": 1, "format": ",d"} if axis.whole else {}
    title = axis.title or chart.unit or None
    return {
        "field": "y",
        "type": "quantitative",
        "scale": scale,
        "axis": {"title": title, **settings},
        "stack": None,
    }


def _reach(owned: Sequence[Owned]) -> list[float]:
    """Return the least and the most that charts show, bands included."""
    found: list[float] = []
    for one in owned:
        for row in drawn(one):
            if row["mark"] not in ASIDE and row["y"] is not None:
                error = 0.0 if one.plot.y.log else row.get("error") or 0.0
                found += [row["y"] - error, row["y"] + error]
                found += [0.0] * (row["mark"] == "bars")
    return [min(found), max(found)]


def _overlaid(made: Json, x: Json, color: Json, told: list[Json]) -> Json:
    """Return a chart with dotted lines over it, on a scale of their own at the right."""
    axis = {"orient": "right", "grid": False, "title": None, "labelColor": MUTED}
    y = {"field": "y", "type": "quantitative", "scale": {"zero": False}, "axis": axis}
    dotted = {"type": "line", "strokeDash": [1, 3], "strokeWidth": 1.5}
    encoding = {"x": x, "y": y, "color": color, "detail": {"field": "line"}, "tooltip": told}
    over = _layer(dotted, "datum.mark == 'over'", encoding)
    return {
        "transform": made["transform"],
        "layer": [{"layer": made["layer"]}, {"name": "overlay", **over}],
        "resolve": {"scale": {"y": "independent"}},
    }


def _line(value: float, name: str, x: Json) -> list[Json]:
    """Return a number across a chart, with its name."""
    data = {"values": [{"at": value, "name": name}]}
    place = {"x": x, "y": {"value": 0}}
    rule = {"type": "rule", "strokeDash": [4, 3], "color": MARK, "strokeWidth": 1.4}
    text = {"type": "text", "align": "left", "baseline": "top", "dx": 4, "color": MARK}
    return [
        {"data": data, "mark": rule, "encoding": {"x": x}},
        {"data": data, "mark": text, "encoding": place | {"text": {"field": "name"}}},
    ]


def _map(owned: Sequence[Owned], names: list[str], room: Room, rivals: Sequence[Owned]) -> Json:
    part: HeatMap = owned[0].plot
    low, high = ends([one.plot for one in rivals if one.plot.unit == part.unit])
    finite = any(math.isfinite(value) for line in part.values for value in line)
    if not finite:
        return {"mark": {"type": "text", "text": part.note or "no value", "color": MUTED}}
    scale: Json = {"domain": [low, high], "clamp": True, "nice": False}
    if part.diverging:
        scale |= {
            "domain": [low, (low + high) / 2, high],
            "range": list(AROUND),
            "interpolate": "lab",
        }
    else:
        scale |= {"scheme": SCHEME, "reverse": part.reversed}
    if part.log and low > 0:
        scale["type"] = "log"
    named = not (part.square or part.upward)
    x = {"field": "column", "type": "ordinal", "sort": None, "axis": {"title": part.across or None}}
    y = {
        "field": "row", "type": "ordinal", "sort": None, "scale": {"reverse": not named},
        "axis": {"title": None if named else part.down, "labelLimit": room.panel / 3, "labelOverlap": not named},
    }  # fmt: skip
    legend = {"orient": "right", "title": part.unit or None, "gradientThickness": 8, "tickCount": 4}
    color = {"field": "value", "type": "quantitative", "scale": scale, "legend": legend}
    told: list[Json] = [{"field": "point", "type": "nominal", "title": " "}]
    if not part.texts:
        told = [
            {"field": "row", "type": "nominal", "title": part.down or "row"},
            {"field": "column", "type": "nominal", "title": f"{part.across or 'column'} across"},
            {
                "field": "value",
                "type": "quantitative",
                "format": ".4~r",
                "title": part.unit or "value",
            },
        ]
    if not owned[0].alone:
        told.insert(0, {"field": "run", "type": "nominal"})
    place = {"x": x, "y": y}
    cells = {"color": color, "tooltip": told}
    layers = [
        _layer(
            {"type": "rect", "width": WHOLE, "height": WHOLE}, "isValid(datum.value)", place | cells
        )
    ]
    if any(ring is not None for ring in part.rings):
        ring = {
            "type": "point",
            "filled": False,
            "size": 50,
            "strokeWidth": 1.4,
            "color": INK if part.diverging else RING,
        }
        layers.append(_layer(ring, "datum.marked", place))
    digits = max(len(text) for line in part.shown for text in line) if part.shown else 4
    cell = (room.panel - (room.panel / 3 if named else 50)) / len(part.columns)
    if (
        len(part.columns) <= PRINTED
        and len(part.rows) <= (60 if named else PRINTED)
        and cell > 1.15 * DIGIT * digits
    ):
        layers.append(_printed(part, low, high, place))
    return {"layer": layers}


def _printed(part: HeatMap, low: float, high: float, place: Json) -> Json:
    """Return the layer of the values in a map's cells, white on dark ones."""
    middle = (low + high) / 2
    dark = f"abs(datum.value - {middle}) > {0.3 * (high - low)}"
    if not part.diverging:
        dark = f"datum.value {'>' if part.reversed else '<'} {low + 0.55 * (high - low)}"
    white = {"condition": {"test": dark, "value": "#ffffff"}, "value": "#1b1b1a"}
    text: Json = {"field": "text"} if part.shown else {"field": "value", "format": ".2f"}
    mark = {"type": "text", "style": "cell"}
    encoding = place | {"text": text, "color": white}
    return {"name": PRINT, **_layer(mark, "isValid(datum.value)", encoding)}


def _boxes(owned: Sequence[Owned], names: list[str], room: Room, rivals: Sequence[Owned]) -> Json:
    part: Boxes = owned[0].plot
    color = numbered(0 if owned[0].alone else owned[0].number).color
    x = {
        "field": "name",
        "type": "ordinal",
        "sort": None,
        "axis": {"title": part.x, "labelOverlap": True},
    }
    reach = [
        value
        for one in rivals
        if one.plot.y == part.y
        for box in one.plot.boxes
        for value in (*box.whiskers, *(far for _, far in box.outliers))
    ]
    scale: Json = {"domain": [min(reach), max(reach)], "nice": True}

    def upright(field: str) -> Json:
        return {"field": field, "type": "quantitative", "scale": scale, "axis": {"title": part.y}}

    told = [
        {"field": name, "type": "quantitative", "format": ".3~r", "title": title}
        for name, title in zip(
            ("low", "q1", "median", "q3", "high", "mean"),
            (
                part.legend[2].split(" to ")[0],
                "q1",
                "median",
                "q3",
                part.legend[2].split(" to ")[-1],
                "mean",
            ),
            strict=True,
        )
    ]
    box, far = "isValid(datum.median)", "isValid(datum.outlier)"
    words = [
        {"field": "point", "type": "nominal", "title": " "},
        {"field": "outlier", "title": part.y, "type": "quantitative", "format": ".3~r"},
    ]
    return {
        "layer": [
            _layer({"type": "rule", "color": color}, box, {"x": x, "y": upright("low"), "y2": {"field": "high"}}),
            _layer(
                {"type": "bar", "color": color, "fillOpacity": 0.35, "stroke": color, "width": {"band": 0.7}},
                box,
                {"x": x, "y": upright("q1"), "y2": {"field": "q3"}, "tooltip": told},
            ),
            _layer(
                {"type": "bar", "stroke": INK, "strokeWidth": 1.4, "width": {"band": 0.7}},
                box,
                {"x": x, "y": upright("median"), "y2": {"field": "median"}},
            ),
            _layer(
                {"type": "point", "color": color, "size": 5, "opacity": 0.6},
                far,
                {"x": x, "y": upright("outlier"), "tooltip": words},
            ),
        ]
    }  # fmt: skip


def _bars(owned: Sequence[Owned], names: list[str], room: Room, rivals: Sequence[Owned]) -> Json:
    part: Bars = owned[0].plot
    y: Json = {
        "field": "name",
        "type": "nominal",
        "sort": None,
        "axis": {"title": None, "labelLimit": room.panel / 3},
    }
    title = {"axis": {"title": part.x.title, "grid": True}}
    scale = {"scale": {"domain": list(part.x.range)} if part.x.range else {}}
    runs = {one.name: numbered(one.number).color for one in owned}
    side: Json = {"y": y, "yOffset": {"field": "run"}} if len(runs) > 1 else {"y": y}
    color = _scale("run", runs, room.legend, True)
    told: list[Json] = [{"field": "name", "type": "nominal"}]
    told += [
        {"field": name, "type": "quantitative", "format": ".3~r"}
        for name in ("value", "low", "high")
    ]

    def across(field: str) -> Json:
        return {"field": field, "type": "quantitative", **title, **scale}

    bar = {"x": across("value"), "color": color, "tooltip": told[: 4 if part.low else 2]}
    ends_ = {"x": across("low"), "x2": {"field": "high"}}
    return {
        "layer": [
            _layer({"type": "bar", "opacity": 0.75}, "isValid(datum.value)", side | bar),
            _layer({"type": "rule"}, "isValid(datum.low)", side | ends_),
        ]
    }


VIEWS: dict[type[Plot], Callable[..., Json]] = {
    Chart: _chart,
    HeatMap: _map,
    Boxes: _boxes,
    Bars: _bars,
}
