"""Figures for a paper: panels of charts laid out to a width in inches, as SVG, PNG and PDF."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap

import pandas as pd

from layerscope.core import LayerscopeError, aside
from layerscope.show.looks import SIZE, Json, config

DPI = 300
POINTS = 72
"""Points to an inch; a pixel of a specification is a point on paper."""
TEXT_WIDTH = 5.5
"""Inches: the width of the text of one column, as in ICLR's style."""
COLUMN_WIDTH = 3.25
"""Inches: the width of one of two columns, as in ICML's style."""
SMALLEST = 40.0
"""Points: a panel is at least this wide."""
CHARACTER = 0.56 * SIZE
"""Points that a character of a title takes."""
ROUNDS = 5
"""How often panels are measured and stretched, at most: axes are as wide as their numbers."""
FORMATS = ("png", "pdf", "svg")


@dataclass(frozen=True)
class Panel:
    """One chart of a figure: its specification, with its rows; `tall` is its height in inches.

    A `square` one is as tall as it is wide.
    """

    title: str
    view: Json
    tall: float
    square: bool


@dataclass(frozen=True)
class Figure:
    """A chart, or several as panels: a notebook shows it, `save` writes it, `data` is the table behind it.

    `spec` is its Vega-Lite specification, with the data, which any tool of Vega's opens.
    """

    name: str
    spec: Json = field(repr=False)
    data: pd.DataFrame = field(repr=False)
    svg: str = field(repr=False)

    def save(self, path: str | Path) -> Path:
        """Write the figure as PDF, PNG (300 dots per inch) or SVG, whichever the name ends in, and return the path.

        The same figure gives the same SVG and PNG.

        Raises:
            LayerscopeError: for another ending, and a file that cannot be written.

        """
        import vl_convert

        path = Path(path)
        kind = path.suffix.lower().removeprefix(".")
        if kind not in FORMATS:
            raise LayerscopeError(
                f"{str(path)!r} is not a valid name for a figure: let it end in .pdf, .png or .svg"
            )
        content = self.svg.encode()
        if kind == "pdf":
            content = vl_convert.svg_to_pdf(self.svg)
        elif kind == "png":
            content = vl_convert.svg_to_png(self.svg, ppi=DPI)
        # half a figure would be taken for another's
        aside(path, lambda part: part.write_bytes(content))
        return path

    def _repr_svg_(self) -> str:
        return self.svg


def laid_out(
    spec: Json, panels: Sequence[Panel], columns: int, width: float
) -> tuple[Json, str]:
    """Return panels beside and below each other, as wide together as `width` in inches, and that drawn.

    `spec` is what stands around them. Axes and legends are as wide as their texts, which only
    drawing tells: the panels are stretched until the figure has its width.
    """
    import vl_convert

    points = POINTS * width
    wide = points / columns - 40
    for _ in range(ROUNDS):
        sized = [_sized(panel, wide) for panel in panels]
        drawn = spec | {"columns": columns, "concat": sized}
        svg = _renumbered(str(vl_convert.vegalite_to_svg(drawn)))
        _, _, after = svg.partition('width="')
        printed, _, _ = after.partition('"')
        missing = points - float(printed)
        if abs(missing) < 1:
            break
        wide = max(SMALLEST, wide + missing / columns)
    return drawn, svg


def _renumbered(svg: str) -> str:
    """Return a drawing whose names of clips and gradients do not depend on what was drawn before it."""
    for number, name in enumerate(dict.fromkeys(re.findall(r'id="(\w+)"', svg))):
        svg = re.sub(
            rf'(?<=id="){name}(?=")|(?<=url\(#){name}(?=\))', f"part{number}", svg
        )
    return svg


def surroundings(
    title: str, notes: Sequence[str], shared: Sequence[str], percent: bool, width: float
) -> Json:
    """Return what stands around the panels of a figure; `shared` are the scales that all of them have together.

    `percent` is whether layers are counted in percent of depth.
    """
    resolve = dict.fromkeys(shared, "shared")
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "config": config(),
        "padding": 2,
        "title": {
            "text": _lines(title, 0.95 * POINTS * width),
            "subtitle": _lines(" · ".join(notes), POINTS * width),
            "fontSize": SIZE + 1,
            "fontWeight": "bold",
            "frame": "bounds",
        },
        "params": [{"name": "percent", "value": percent}],
        "spacing": {"row": 14, "column": 10},
        "resolve": {"scale": resolve, "legend": resolve},
    }


def _sized(panel: Panel, wide: float) -> Json:
    height = panel.tall * POINTS
    if panel.square:
        height = wide
    return {
        "title": {"text": _lines(panel.title, wide)},
        "width": round(wide, 1),
        "height": round(height, 1),
        **panel.view,
    }


def _lines(text: str, points: float) -> list[str]:
    """Return a text in lines that fit a width, three at most."""
    most = max(8, int(points / CHARACTER))
    return wrap(text, most, max_lines=3, placeholder=" …", break_on_hyphens=False) or [
        ""
    ]
