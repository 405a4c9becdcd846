"""The one style of all figures: sizes, colours, dashes, markers; sheets of panels, their axes and texts, files."""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import aside
from layerscope.show.numbers import NIL
from layerscope.show.plain import plain
from layerscope.show.plots import NOTHING, Axis

DPI = 300
SCREEN = 110
"""Pixels of a screen to an inch."""
MADE_BY = "layerscope"
"""What every figure file says of itself."""
TEXT_WIDTH = 5.5
"""Inches: the width of the text of one column, as in ICLR's style."""
COLUMN_WIDTH = 3.25
"""Inches: the width of one of two columns, as in ICML's style."""
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's without their yellow, which is lost on paper; also distinct to the colour-blind."""
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)), (0, (2.5, 1.2)))
MARKERS = ("o", "s", "^", "v", "P", "X", "p")
"""As many as there are colours; dashes have another period, so that 35 lines look different."""
FILLS = ("full", "none", "left", "right", "bottom", "top")
MOST_LINES = 4
"""The most lines a title may have."""
LONG = 500
"""Texts of at least this many characters are cut without measuring them."""
DARK = "#222222"
LEFT = 0.012
"""Where the title and legend of a figure begin, as a share of its width."""
ROUNDS = 20
"""The most rounds in which a layout is settled."""
Values = npt.NDArray[np.float64]
RING: dict[str, Any] = {
    "marker": "o", "markersize": 6.5, "mfc": "none", "mec": DARK, "mew": 0.8, "linestyle": "none", "clip_on": False,
}  # fmt: skip
"""How a point that stands out is marked."""
DIAMOND: dict[str, Any] = {"marker": "D", "markersize": 4, "mfc": "white", "linestyle": "none"}
"""How a point that follows the line is marked."""
MARKS: dict[str, Any] = {
    "png": {"Software": MADE_BY},
    "pdf": {"Creator": MADE_BY, "CreationDate": None},
    "svg": {"Creator": MADE_BY, "Date": None},
}
"""The formats of a figure, and what the files of each say of themselves."""
STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 50, 100, 200, 500, 1000)
MARKED = 16
"""Lines of more points than this carry about this many markers."""
SIZE = 8
"""Points: all text but titles, as large as a caption's."""
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans", "font.size": SIZE, "axes.titlesize": SIZE, "axes.labelsize": SIZE,
    "xtick.labelsize": SIZE, "ytick.labelsize": SIZE, "legend.fontsize": SIZE, "figure.titlesize": SIZE + 1,
    "axes.spines.top": False,
    "axes.spines.right": False, "axes.linewidth": 0.6, "axes.edgecolor": "#444444", "xtick.major.width": 0.6,
    "ytick.major.width": 0.6, "xtick.major.size": 2.5, "ytick.major.size": 2.5, "axes.grid": True,
    "grid.color": "#e4e4e4", "grid.linewidth": 0.5, "axes.axisbelow": True, "lines.linewidth": 1.2,
    "lines.markersize": 3, "figure.facecolor": "white", "legend.frameon": False, "legend.columnspacing": 1.4,
    "axes.ymargin": 0.09, "text.parse_math": False, "pdf.fonttype": 42, "svg.hashsalt": MADE_BY,
    "figure.constrained_layout.h_pad": 0.04,
    "figure.constrained_layout.w_pad": 0.04, "axes.titlelocation": "left",
}  # fmt: skip


class SheetFigure(Figure):
    """A figure that a notebook shows, whether pyplot was imported there or not."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """Return the picture, and the width in pixels that it is shown at."""
        buffer = BytesIO()
        with styled():
            self.savefig(buffer, format="png")
        return buffer.getvalue(), {"width": round(SCREEN * self.get_figwidth())}


@contextmanager
def styled() -> Iterator[None]:
    """Draw in this room's style and leave the caller's settings as they were."""
    with rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing from"
        )  # a name in a script the font lacks
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


def sheet(
    width: float, panels: int, columns: int, height: float, title: str
) -> tuple[Any, list[Any]]:
    """Return a figure with a canvas of its own, and its panels in reading order, each of this height in inches."""
    rows = -(-panels // columns)
    figure = SheetFigure(figsize=(width, rows * height + 0.25), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis in axes[panels:]:
        axis.remove()
    if title:
        title = fitted(figure, title, 1 - 2 * LEFT, STYLE["figure.titlesize"], "bold")
        figure.suptitle(title, x=LEFT, ha="left", fontweight="bold")
    return figure, axes[:panels]


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
    names = [
        fitted(figure, str(h.get_label()), 0.97 - 0.4 / figure.get_figwidth(), SIZE)
        for h in handles
    ]
    for columns in range(min(4, len(handles)), 0, -1):
        legend = figure.legend(
            handles, [str(i) for i in range(len(names))], loc="outside lower left", ncols=columns
        )
        for text, name in zip(legend.get_texts(), names, strict=True):
            text.set_text(
                name
            )  # here and not above: a legend leaves out names that begin with an underscore
        box = legend.get_window_extent(figure.canvas.get_renderer())
        if columns == 1 or box.width <= figure.bbox.width:
            break
        legend.remove()
    figure.set_figheight(figure.get_figheight() + box.height / figure.dpi)


def finish(figure: Any) -> Any:
    """Break or cut the titles of panels that are wider than their panel, settle the layout, and return the figure."""
    titles = {
        axis: axis.get_title(loc="left") for axis in figure.axes if axis.get_title(loc="left")
    }
    for axis in titles:
        axis.set_title("-")  # panels are as wide as their numbers allow, whatever they are called
    figure.get_layout_engine().execute(figure)
    extra: dict[int, int] = {}
    for axis, title in titles.items():
        axis.apply_aspect()
        lines = broken(
            figure,
            title,
            axis.get_window_extent().width / figure.bbox.width,
            STYLE["axes.titlesize"],
        )
        axis.set_title("\n".join(lines))
        row = axis.get_subplotspec().rowspan.start
        extra[row] = max(extra.get(row, 0), len(lines) - 1)
    figure.set_figheight(figure.get_figheight() + 0.14 * sum(extra.values()))
    fixed = any(axis.get_aspect() != "auto" for axis in figure.axes)
    for _ in range(
        ROUNDS if fixed else 1
    ):  # panels of a fixed shape find their place below high titles in steps
        before = [axis.get_position(original=True).bounds for axis in figure.axes]
        figure.get_layout_engine().execute(figure)
        after = [axis.get_position(original=True).bounds for axis in figure.axes]
        if np.allclose(before, after, atol=1e-4):
            break
    figure.set_layout_engine(
        "none"
    )  # both files have the same layout, and neither pays for it again
    return figure


def mark_layers(axis: Any, end: int, most: int, first: int = 0) -> None:
    """Set the ticks of a horizontal axis that ends at a layer or at 100 %: at most `most` steps."""
    step = layer_step(end, most)
    axis.set_xticks([tick for tick in range(0, end + 1, step) if tick >= first])
    room = max(0.5, 0.05 * end)
    axis.set_xlim(first - room, end + room)


def layer_step(depth: int, most: int) -> int:
    """Return how many layers apart ticks are: where it can be, so that the last layer has one."""
    enough = [step for step in STEPS if depth / step <= most]
    even = [step for step in enough if depth % step == 0 and depth / step >= 3]
    return (
        even[0]
        if even
        else next((step for step in enough if step in (1, 2, 5, 10, 20, 50)), enough[0])
    )


def name_columns(names: list[str], most: int) -> tuple[list[float], list[str]]:
    """Return where names of rows or columns stand and which: about `most` of them, the last one included."""
    numbered = [i for i, name in enumerate(names) if name.isdigit()] or list(range(len(names)))
    step = layer_step(max(1, numbered[-1]), most)
    kept = [i for i in numbered if i % step == 0]
    if len(names) > len(numbered):  # what follows the final norm has the last place
        kept = [i for i in kept if i + step <= len(names)] + [len(names) - 1]
    return [i + 0.5 for i in kept], [names[i] for i in kept]


def scale(axis: Any, values: Values, about: Axis) -> None:
    """Set the vertical axis: logarithmic where only that shows a shape, and long enough that noise looks like noise."""
    values = values[np.isfinite(values)]
    if not len(values):
        axis.text(
            0.5,
            0.5,
            "no value",
            transform=axis.transAxes,
            ha="center",
            va="center",
            color="#777777",
        )
        axis.yaxis.set_major_locator(NullLocator())
        return
    if about.log and values.min() > 0:
        axis.set_yscale("log")
        wide = values.max() / values.min()
        steps = (1.0, 2.0, 5.0) if wide < 30 else (1.0, 3.0) if wide < 1000 else (1.0,)
        axis.yaxis.set_major_locator(LogLocator(subs=steps) if wide > 5 else MaxNLocator(4))
        axis.yaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_formatter(FuncFormatter(partial(_tick, digits=3)))
        return
    most = float(np.abs(values).max())
    least = max(about.least * about.scale, 1e-4 * most, 2 * NOTHING * about.scale * (most == 0))
    if about.range is not None:
        axis.set_ylim(*about.range)
    elif values.max() - values.min() < least:
        middle = float(values.max() + values.min()) / 2
        axis.set_ylim(middle - least / 2, middle + least / 2)
    axis.yaxis.set_major_formatter(FuncFormatter(_tick))


def marked(values: Values, number: int) -> list[int]:
    """Return where a line carries markers: not everywhere where it is long, but at each value without neighbours."""
    step = -(-len(values) // MARKED)
    there = np.isfinite(np.concatenate([[np.nan], values, [np.nan]]))
    single = there[1:-1] & ~there[:-2] & ~there[2:]
    return sorted(
        {*range((2 * number) % step, len(values), step), *np.flatnonzero(single).tolist()}
    )


def plain_ticks(bar: Any) -> None:
    """Write the numbers beside a colour bar in digits, those of a logarithmic one too, and take its frame away."""
    bar.outline.set_visible(False)
    bar.formatter = FuncFormatter(partial(_tick, digits=3))
    bar.minorformatter = NullFormatter()
    bar.update_ticks()


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG, PDF and SVG, the same bytes each time, and return the paths; a figure of ours is replaced.

    Raises `LayerscopeError` where a file that is there was drawn by something else, or cannot be
    written.
    """
    paths = [folder / f"{name}.{kind}" for kind in MARKS]
    for path, (kind, marks) in zip(paths, MARKS.items(), strict=True):
        if path.is_file() and MADE_BY.encode() not in path.read_bytes():
            raise LayerscopeError(
                f"{str(path)!r} is not a figure of layerscope's: give another folder"
            )
        aside(
            path, partial(figure.savefig, metadata=marks, format=kind)
        )  # half a figure would be taken for another's
    return paths


def broken(figure: Any, title: str, share: float, size: float) -> list[str]:
    """Return the lines of a text, broken between words where it is too wide; the last one is cut where it still is."""
    lines: list[str] = []
    for part in title.split("\n"):
        words, first = part.split(" "), len(lines)
        while words and len(lines) < first + MOST_LINES - 1:
            fit = (
                n
                for n in range(len(words), 1, -1)
                if _wide(figure, " ".join(words[:n]), size) <= share
            )
            kept = next(fit, 1)
            lines.append(" ".join(words[:kept]))
            words = words[kept:]
        lines += [" ".join(words)] * bool(words)
    return [fitted(figure, line, share, size) for line in lines]


def _wide(figure: Any, text: str, size: float, weight: str = "normal") -> float:
    font = FontProperties(family=STYLE["font.family"], size=size, weight=weight)
    pixels = figure.canvas.get_renderer().get_text_width_height_descent(text, font, False)[0]
    return float(pixels / figure.bbox.width)


def _cut(text: str, kept: int) -> str:
    return f"{text[: math.ceil(kept / 2)]}…{text[len(text) - kept // 2 :]}"


def _tick(value: float, number: int, digits: int = 6) -> str:
    value = 0.0 if abs(value) < NIL else value
    shown, _, power = f"{value:.{digits}g}".partition("e")
    return (f"{shown}e{int(power)}" if power else shown).replace("-", "−")
