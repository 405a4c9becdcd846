"""The one style of all figures: sizes, colours, dashes and markers; sheets of panels; texts that fit their place."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from layerscope.core.errors import LayerscopeError
from layerscope.show.plain import plain

DPI = 300
MADE_BY = "layerscope"
"""What every figure file says of itself."""
TEXT_WIDTH = 6.3
"""Inches: the width of a page's text."""
COLUMN_WIDTH = 3.15
"""Inches: the width of one of a page's two columns."""
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's without their yellow, which is lost on paper; told apart by the colour-blind."""
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)), (0, (2.5, 1.2)))
MARKERS = ("o", "s", "^", "v", "P", "X", "p")
"""As many as there are colours; dashes have another period, so that 35 lines look different."""
FILLS = ("full", "none", "left", "right", "bottom", "top")
LONG = 500
"""Texts of so many characters are cut without measuring them."""
DARK = "#222222"
LEFT = 0.012
"""Where the title and legend of a figure begin, as a share of its width."""
STEPS = 20
"""At most so often is a layout settled."""
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans", "font.size": 7.5, "axes.titlesize": 8, "axes.labelsize": 7.5, "xtick.labelsize": 7,
    "ytick.labelsize": 7, "legend.fontsize": 7, "figure.titlesize": 8.5, "axes.spines.top": False,
    "axes.spines.right": False, "axes.linewidth": 0.6, "axes.edgecolor": "#444444", "xtick.major.width": 0.6,
    "ytick.major.width": 0.6, "xtick.major.size": 2.5, "ytick.major.size": 2.5, "axes.grid": True,
    "grid.color": "#e4e4e4", "grid.linewidth": 0.5, "axes.axisbelow": True, "lines.linewidth": 1.2,
    "lines.markersize": 3, "figure.facecolor": "white", "legend.frameon": False, "legend.columnspacing": 1.4,
    "axes.ymargin": 0.09, "text.parse_math": False, "pdf.fonttype": 42, "figure.constrained_layout.h_pad": 0.04,
    "figure.constrained_layout.w_pad": 0.04, "axes.titlelocation": "left",
}  # fmt: skip


@contextmanager
def styled() -> Iterator[None]:
    """Draw in this room's style and leave the caller's settings as they were."""
    with rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a name in a script the font lacks
        yield


def look(number: int) -> dict[str, Any]:
    """Return colour, dash and marker of a line."""
    return {
        "color": COLORS[number % len(COLORS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
    }


def is_narrow(width: float) -> bool:
    """Return whether a figure stands in a column."""
    return width < (COLUMN_WIDTH + TEXT_WIDTH) / 2


def panel_columns(width: float, panels: int) -> int:
    """Return how many panels of bars or boxes stand beside each other: below each other in a column, while few."""
    return 1 if panels == 1 or (is_narrow(width) and panels <= 3) else 2


def sheet(width: float, panels: int, columns: int, height: float, title: str) -> tuple[Any, list[Any]]:
    """Return a figure with a canvas of its own, and its panels in reading order, each so many inches high."""
    rows = -(-panels // columns)
    figure = Figure(figsize=(width, rows * height + 0.25), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis in axes[panels:]:
        axis.remove()
    if title:
        title = fitted(figure, title, 1 - 2 * LEFT, STYLE["figure.titlesize"], "bold")
        figure.suptitle(title, x=LEFT, ha="left", fontweight="bold")
    return figure, axes[:panels]


def label_below(axes: list[Any], columns: int, text: str) -> None:
    """Name the horizontal axis below the last panel of each column."""
    for axis in axes[-columns:]:
        axis.set_xlabel(text)


def fitted(figure: Any, text: str, share: float, size: float, weight: str = "normal") -> str:
    """Return a text as it is, or without its middle, so that it takes no more than a share of the figure's width."""
    text = plain(text)
    if len(text) < LONG and _wide(figure, text, size, weight) <= share:
        return text
    kept = 1
    while kept < len(text) and _wide(figure, _cut(text, kept + 1), size, weight) <= share:
        kept += 1
    return _cut(text, kept)


def explain(figure: Any, handles: list[Any]) -> None:
    """Write below the panels what lines and marks stand for, in as many columns as fit; the figure grows by it."""
    if not handles:
        return
    names = [fitted(figure, str(h.get_label()), 0.97 - 0.4 / figure.get_figwidth(), 7) for h in handles]
    for columns in range(min(4, len(handles)), 0, -1):
        legend = figure.legend(handles, [str(i) for i in range(len(names))], loc="outside lower left", ncols=columns)
        for text, name in zip(legend.get_texts(), names, strict=True):
            text.set_text(name)  # here and not above: a legend leaves out names that begin with an underscore
        box = legend.get_window_extent(figure.canvas.get_renderer())
        if columns == 1 or box.width <= figure.bbox.width:
            break
        legend.remove()
    figure.set_figheight(figure.get_figheight() + box.height / figure.dpi)


def finish(figure: Any) -> Any:
    """Break or cut the titles of panels that are wider than their panel, settle the layout, and return the figure."""
    titles = {axis: axis.get_title(loc="left") for axis in figure.axes if axis.get_title(loc="left")}
    for axis in titles:
        axis.set_title("-")  # panels are as wide as their numbers allow, whatever they are called
    figure.get_layout_engine().execute(figure)
    extra: dict[int, int] = {}
    for axis, title in titles.items():
        axis.apply_aspect()
        lines = _broken(figure, title, axis.get_window_extent().width / figure.bbox.width)
        axis.set_title("\n".join(lines))
        row = axis.get_subplotspec().rowspan.start
        extra[row] = max(extra.get(row, 0), len(lines) - 1)
    figure.set_figheight(figure.get_figheight() + 0.14 * sum(extra.values()))
    fixed = any(axis.get_aspect() != "auto" for axis in figure.axes)
    for _ in range(STEPS if fixed else 1):  # panels of a fixed shape find their place below high titles in steps
        before = [axis.get_position(original=True).bounds for axis in figure.axes]
        figure.get_layout_engine().execute(figure)
        after = [axis.get_position(original=True).bounds for axis in figure.axes]
        if np.allclose(before, after, atol=1e-4):
            break
    figure.set_layout_engine("none")  # both files have the same layout, and neither pays for it again
    return figure


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and as PDF, the same bytes each time, and return the paths; a figure of ours is replaced.

    Raises `LayerscopeError` where a file that is there was drawn by something else, or cannot be written.
    """
    paths = [folder / f"{name}.png", folder / f"{name}.pdf"]
    for path in paths:
        part = path.with_name(f".{path.name}.part")
        marks = {"Creator": MADE_BY, "CreationDate": None} if path.suffix == ".pdf" else {"Software": MADE_BY}
        try:
            if path.exists() and MADE_BY.encode() not in path.read_bytes():
                raise LayerscopeError(f"{str(path)!r} is not a figure of layerscope's: give another folder")
            figure.savefig(part, metadata=marks, format=path.suffix[1:])
            part.replace(path)  # whole or not at all: half a figure would be taken for someone else's
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            raise LayerscopeError(
                f"figure {str(path)!r} cannot be written: {error.strerror}; give another folder"
            ) from None
    return paths


def _broken(figure: Any, title: str, share: float) -> list[str]:
    """Return the lines of a title, each broken once between words where it is too wide, and cut where it still is."""
    size = STYLE["axes.titlesize"]
    lines: list[str] = []
    for part in title.split("\n"):
        words = part.split(" ")
        fit = (n for n in range(len(words), 0, -1) if _wide(figure, " ".join(words[:n]), size) <= share)
        first = next(fit, 1)
        lines += [" ".join(some) for some in (words[:first], words[first:]) if some]
    return [fitted(figure, line, share, size) for line in lines]


def _wide(figure: Any, text: str, size: float, weight: str = "normal") -> float:
    """Return a text's share of the figure's width."""
    font = FontProperties(family=STYLE["font.family"], size=size, weight=weight)
    pixels = figure.canvas.get_renderer().get_text_width_height_descent(text, font, False)[0]
    return float(pixels / figure.bbox.width)


def _cut(text: str, kept: int) -> str:
    return f"{text[: math.ceil(kept / 2)]}…{text[len(text) - kept // 2 :]}"
