"""Figures for a paper: panels of charts laid out to a width in inches, as SVG, PNG and PDF."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from textwrap import wrap
from typing import Any

import pandas as pd

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import aside
from layerscope.show.looks import SIZE, Json, config

DPI = 300
POINTS = 72
"""Points to an inch; a pixel of a specification is a point on paper."""
MADE_BY = "layerscope"
"""What every figure file says of itself."""
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
    """One chart of a figure: its specification and rows; `tall` is its height in inches, or as a share of its width."""

    title: str
    view: Json
    rows: list[dict[str, Any]]
    tall: float
    square: bool = False


@dataclass(frozen=True)
class Layout:
    """What stands around the panels of a figure; `shared` are the scales that all panels have together."""

    title: str
    notes: tuple[str, ...]
    shared: tuple[str, ...]
    percent: bool = False
    """Whether layers are counted in percent of depth."""


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

        A figure of layerscope's is replaced. The same figure gives the same SVG and PNG.

        Raises:
            LayerscopeError: for another ending, a file that layerscope did not write, and one that
                cannot be written.

        """
        path = Path(path)
        kind = path.suffix.lower().removeprefix(".")
        if kind not in FORMATS:
            raise LayerscopeError(
                f"{str(path)!r} is not a valid name for a figure: let it end in .pdf, .png or .svg"
            )
        if path.is_file() and MADE_BY.encode() not in path.read_bytes():
            raise LayerscopeError(
                f"{str(path)!r} is not a figure of layerscope's: give another folder"
            )
        made = self._bytes(kind)
        # half a figure would be taken for another's
        aside(path, lambda part: part.write_bytes(made))
        return path

    def _bytes(self, kind: str) -> bytes:
        import vl_convert

        if kind == "pdf":
            return bytes(vl_convert.svg_to_pdf(self.svg)) + f"%{MADE_BY}\n".encode()
        if kind == "svg":
            return f"{self.svg}<!-- {MADE_BY} -->\n".encode()
        return _signed(vl_convert.svg_to_png(self.svg, ppi=DPI))

    def _repr_svg_(self) -> str:
        return self.svg


def _signed(png: bytes) -> bytes:
    """Return a picture that says who made it, and how large it is on paper."""
    from PIL import Image, PngImagePlugin

    facts, target = PngImagePlugin.PngInfo(), BytesIO()
    facts.add_text("Software", MADE_BY)
    Image.open(BytesIO(png)).save(target, "png", pnginfo=facts, dpi=(DPI, DPI))
    return target.getvalue()


def laid_out(
    layout: Layout, panels: Sequence[Panel], columns: int, width: float
) -> tuple[Json, str]:
    """Return panels beside and below each other, as wide together as `width` in inches, and that drawn.

    Axes and legends are as wide as their texts, which only drawing tells: the panels are stretched
    until the figure has its width.
    """
    import vl_convert

    points = POINTS * width
    wide = points / columns - 40
    for _ in range(ROUNDS):
        spec = _placed(layout, panels, columns, wide, points)
        svg = _renumbered(str(vl_convert.vegalite_to_svg(spec)))
        missing = points - float(svg.partition('width="')[2].partition('"')[0])
        if abs(missing) < 1:
            break
        wide = max(SMALLEST, wide + missing / columns)
    return spec, svg


def _renumbered(svg: str) -> str:
    """Return a drawing whose names of clips and gradients do not depend on what was drawn before it."""
    names = dict.fromkeys(re.findall(r'id="(\w+)"', svg))
    numbers = {name: f"part{number}" for number, name in enumerate(names)}
    return re.sub(
        r'(?<=id=")\w+(?=")|(?<=url\(#)\w+(?=\))', lambda match: numbers[match[0]], svg
    )


def _placed(
    layout: Layout, panels: Sequence[Panel], columns: int, wide: float, points: float
) -> Json:
    resolve = {name: "shared" for name in layout.shared}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "config": config(),
        "padding": 2,
        "title": _title(layout, points),
        "params": [{"name": "percent", "value": layout.percent}],
        "columns": columns,
        "spacing": {"row": 14, "column": 10},
        "resolve": {"scale": resolve, "legend": resolve},
        "concat": [_sized(panel, wide) for panel in panels],
    }


def _sized(panel: Panel, wide: float) -> Json:
    height = panel.tall * wide if panel.square else panel.tall * POINTS
    title = {"title": {"text": _lines(panel.title, wide)}} if panel.title else {}
    size = {"width": round(wide, 1), "height": round(height, 1)}
    return title | {"data": {"values": panel.rows}} | size | panel.view


def _title(layout: Layout, points: float) -> Json:
    return {
        "text": _lines(layout.title, 0.95 * points),
        "subtitle": _lines(" · ".join(layout.notes), points),
        "fontSize": SIZE + 1,
        "fontWeight": "bold",
        "frame": "bounds",
    }


def _lines(text: str, points: float) -> list[str]:
    """Return a text in lines that fit a width, three at most."""
    most = max(8, int(points / CHARACTER))
    return wrap(text, most, max_lines=3, placeholder=" …", break_on_hyphens=False) or [
        ""
    ]
