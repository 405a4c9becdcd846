"""How charts look: colours that colour-blind people can tell apart, dashes and shapes, on white and on dark paper.

And the words of a Vega-Lite specification, as short as they are said: fields, layers, tooltips.
"""

from dataclasses import dataclass, replace
from typing import Any

from layerscope.show.plots import Chart, Plot, Series

Json = dict[str, Any]
COLORS = ("#0072B2", "#D55E00", "#009E73", "#B8578E", "#8A6D00", "#5A5A5A", "#332288")
DASHES = ((1, 0), (6, 3), (2, 2), (6, 2, 2, 2), (9, 3))
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross")
"""There are seven colours and five dashes and shapes, so 35 lines look different."""
INK, MUTED, GRID, PAPER, MARK = "#1b1b1b", "#5b5b5b", "#e8e8e4", "#ffffff", "#9a5b00"
AROUND = ("#b35806", "#f4f4f1", "#2166ac")
"""Orange below, blue above: distinct to the colour-blind."""
RING = "#ff3d7f"
"""Seen on both ends of a map's scale, in both themes."""
DARK = dict(zip(
    (*COLORS, INK, MUTED, GRID, PAPER, MARK, *AROUND),
    (
        "#56B4E9", "#E69F00", "#2FC49A", "#E79CC6", "#F0E442", "#BDBDBD", "#B39DFF",
        "#ececec", "#a9adb3", "#2c3036", "#1e2125", "#f0b24a",
        "#f1a340", "#2c3036", "#67a9e6",
    ),
    strict=True,
))  # fmt: skip
"""Each colour on dark paper."""
FONT = "DejaVu Sans, Verdana, Arial, sans-serif"
SIZE = 8
"""Points: as large as a caption's text."""


def config(size: float = SIZE) -> dict[str, Any]:
    """Return Vega-Lite's settings for every chart, whose text has this size."""
    texts = {"color": INK, "fontSize": size, "fontWeight": "normal"}
    words = {
        f"{kind}{name[0].upper()}{name[1:]}": value
        for kind in ("label", "title")
        for name, value in texts.items()
    }
    return {
        "aria": False,
        "background": PAPER,
        "font": FONT,
        "view": {"stroke": None},
        "axis": words | {
            "domainColor": MUTED, "gridColor": GRID, "gridWidth": 0.7, "labelOverlap": True, "labelSeparation": 3,
            "tickColor": MUTED,
            "tickSize": 3, "titlePadding": 5,
        },
        "axisX": {"grid": False, "tickCount": 6, "labelFlush": False},
        "axisY": {"domain": False, "ticks": False, "tickCount": 5},
        "axisBand": {"grid": False, "domain": False, "ticks": False, "labelAngle": 0},
        "legend": words | {
            "orient": "bottom", "symbolSize": 5 * size, "title": None,
            "layout": {"bottom": {"direction": "vertical", "anchor": "start"}},
        },
        "line": {"strokeWidth": 0.1 * size + 0.6},
        "point": {"filled": True, "size": 2 * size},
        "rule": {"color": INK},
        "text": texts,
        "style": {"cell": {"fontSize": size - 1}},
        "title": texts | {
            "anchor": "start", "frame": "group", "offset": 6, "subtitleColor": MUTED, "subtitleFontSize": size,
        },
    }  # fmt: skip


def quantity(field: str, **more: Any) -> Json:
    """Return the encoding of a column of numbers."""
    return {"field": field, "type": "quantitative", **more}


def category(field: str, **more: Any) -> Json:
    """Return the encoding of a column of names, in the order of the rows."""
    return {"field": field, "type": "nominal", "sort": None, **more}


def hover(field: str, title: str | None = None) -> Json:
    """Return what a tooltip shows for a row: a name, or a number if it has a title."""
    if title is None:
        return {"field": field, "type": "nominal", "title": field}
    return quantity(field, title=title, format=".4~r")


def layer(mark: Json, test: str, encoding: Json) -> Json:
    """Return one layer of a view, of the rows that pass a test; a mark's name is that of the layer."""
    return {"transform": [{"filter": test}], "mark": mark, "encoding": encoding}


def nothing(text: str) -> Json:
    """Return a view that says why there is nothing to see."""
    return {"layer": [{"mark": {"type": "text", "text": text, "color": MUTED}}]}


@dataclass(frozen=True)
class Owned:
    """A plot of a result: what the result is called, its number, which is that of its colour, and if it is alone."""

    plot: Any
    name: str
    number: int
    alone: bool


@dataclass(frozen=True)
class Look:
    """Colour, dash and shape of a line."""

    color: str
    dash: tuple[int, ...]
    shape: str


def look(owned: Owned, series: Series, names: list[str]) -> Look:
    """Return how a series looks: several results differ in colour and shape, series of one result in all.

    `names` are the series that lie over each other anywhere, so that each looks the same everywhere.
    """
    kind = names.index(series.name) if series.name in names else 0
    if isinstance(series.tone, int):
        return numbered(series.tone)
    if series.tone == "rival":
        return replace(numbered(owned.number + 1), dash=DASHES[1], shape=SHAPES[1])
    if series.tone == "ink":
        return Look(INK, DASHES[0], SHAPES[3])
    alone = owned.alone and series.mark == "line"
    return replace(numbered(kind if alone else owned.number), dash=numbered(kind).dash)


def numbered(number: int) -> Look:
    """Return the look of a line by its number."""
    return Look(
        COLORS[number % len(COLORS)],
        DASHES[number % len(DASHES)],
        SHAPES[number % len(SHAPES)],
    )


def series_names(plots: list[Plot]) -> list[str]:
    """Return the series that lie over each other anywhere, in one order; what has no name looks like the only one."""
    charts = [plot for plot in plots if isinstance(plot, Chart) and plot.overlaid]
    names = dict.fromkeys(series.name for chart in charts for series in chart.series)
    named = [name for name in names if name]
    return ["", *named] if "" in names and len(named) > 1 else named
