"""Which figures documents give, and their files, each as wide as a page's text and as one of its columns."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd

from layerscope.core.errors import LayerscopeError, choices
from layerscope.show.document import Document, TokenGrid
from layerscope.show.figure import (
    COLUMN_WIDTH,
    FORMATS,
    POINTS,
    TEXT_WIDTH,
    Figure,
    Layout,
    Panel,
    laid_out,
)
from layerscope.show.lines import Room
from layerscope.show.looks import Owned, series_names
from layerscope.show.plain import plain
from layerscope.show.plots import Bars, Chart, HeatMap, Plot
from layerscope.show.rows import rows, titles
from layerscope.show.specification import drawn, notes, view

Drawer = Callable[[float], Figure]
"""Draws a figure of a width in inches."""
MOST_SINGLES = 20
"""Charts of sheets that get files of their own too, at most; `plot` draws any."""
ROW = 0.15
"""Inches of a row that has a name."""
TOKEN = 0.52
"""Inches that a token takes across."""
LINES = 40
"""Rows of a grid, at most; tables hold the tokens beyond."""
GRID_NOTES = ("colour: probability of the likeliest prediction", "framed: from here on it stays")
CHANCES = ["#ffffff", "#6ca3d7"]


def draw(given: Sequence[tuple[str, Document]], folder: str | Path) -> list[Path]:
    """Draw the plots of documents, each with its name, into a folder and return the paths of the files.

    Plots of one `sheet` are panels of one figure; every other plot has a figure, with a panel for
    each result. Charts of a sheet have a figure each as well, unless they are many.
    """
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LayerscopeError(
            f"figures cannot be written to {str(folder)!r}: {error.strerror}; give another folder"
        ) from None
    drawers = dict(figures(given))
    files = {name: drawer(TEXT_WIDTH) for name, drawer in drawers.items()}
    files |= {f"{name}-column": drawer(COLUMN_WIDTH) for name, drawer in drawers.items()}
    panels = dict(singles(given))
    if len(panels) <= MOST_SINGLES:
        files |= {name: drawer(COLUMN_WIDTH) for name, drawer in panels.items()}
    return [
        figure.save(target / f"{name}.{kind}") for name, figure in files.items() for kind in FORMATS
    ]


def figure(document: Document, name: str | None = None, width: float | None = None) -> Figure:
    """Return the figure of a document that has this name, or of a metric; by default the first there is."""
    members = document.members or (document,)
    given = [("" if len(members) == 1 else " on ".join(member.title), member) for member in members]
    found = dict(figures(given))
    for single, drawer in [*singles(given), *_single_maps(given)]:
        found.setdefault(single.removeprefix("curve-"), drawer)
    if not found:
        raise LayerscopeError(f"the {document.kind} has no plot")
    name = next(iter(found)) if name is None else name
    if name not in found:
        raise LayerscopeError(f"figure {name!r} does not exist{choices(name, found, 'there are')}")
    return found[name](TEXT_WIDTH if width is None else width)


def figures(given: Sequence[tuple[str, Document]]) -> Iterator[tuple[str, Drawer]]:
    """Yield the name of each figure of several widths, and what draws it."""
    owned = _owned(given)
    sheets: dict[str, list[Owned]] = {}
    for one in owned:
        sheets.setdefault(one.plot.sheet or one.plot.name, []).append(one)
    for name, own in sheets.items():
        yield _file(name), _drawer(name, own, given, owned)
    for number, (name, document) in enumerate(given):
        for section in document.sections:
            for grid in [part for part in section.parts if isinstance(part, TokenGrid)][:1]:
                file = section.name if len(given) == 1 else f"{section.name}-{number + 1}"
                what = f"{name or document.title[0]}: {section.title[0].lower()}{section.title[1:]}"
                yield _file(file), partial(_grid, file, grid, what)


def singles(given: Sequence[tuple[str, Document]]) -> Iterator[tuple[str, Drawer]]:
    """Yield each panel of results that lie over each other as a figure of its own."""
    owned = _owned(given)
    own = [
        one for one in owned if isinstance(one.plot, Chart) and one.plot.overlaid and one.plot.sheet
    ]
    groups = _groups(own)
    names = [charts[0].plot.name for charts in groups.values()]
    for name, charts in zip(names, groups.values(), strict=True):
        variant = charts[0].plot.variant.replace(", ", ",")
        unique = f"{name}-{variant}" if names.count(name) > 1 and variant else name
        yield _file(unique), _drawer(unique, charts, given, owned)


def _single_maps(given: Sequence[tuple[str, Document]]) -> Iterator[tuple[str, Drawer]]:
    """Yield each kind of heat map of a sheet as a figure of its own."""
    owned = [one for one in _owned(given) if isinstance(one.plot, HeatMap) and one.plot.sheet]
    for name in dict.fromkeys(one.plot.name for one in owned):
        own = [one for one in owned if one.plot.name == name]
        yield _file(name), _drawer(name, own, given, owned)


def _drawer(
    name: str,
    own: Sequence[Owned],
    given: Sequence[tuple[str, Document]],
    owned: Sequence[Owned],
) -> Drawer:
    names = series_names([one.plot for one in owned])
    return partial(_sheet, name, own, names, _heading(given))


def _sheet(name: str, owned: Sequence[Owned], names: list[str], title: str, width: float) -> Figure:
    """Return a figure of plots: those that lie over each other in one panel, every other one in its own."""
    groups = _groups(owned)
    columns = _columns(owned[0].plot, len(groups), width)
    room = Room(POINTS * width / columns, POINTS * width)
    panels = [
        Panel(
            title=called if len(groups) > 1 or own[0].plot.sheet else own[0].plot.title,
            view=view(own, names, room, owned),
            rows=[row for one in own for row in drawn(one)],
            tall=_height(own[0].plot, columns, len(own)),
            square=isinstance(own[0].plot, HeatMap) and own[0].plot.square,
        )
        for called, own in groups.items()
    ]
    depths = {one.plot.x.depth for one in owned if isinstance(one.plot, Chart)} - {None}
    overlaid = isinstance(owned[0].plot, Chart) and owned[0].plot.overlaid and not owned[0].alone
    several = len({one.plot.title for one in owned}) > 1
    if len(groups) > 1 and not several:
        title = " · ".join(filter(None, (plain(owned[0].plot.title), title)))
    shared: tuple[str, ...] = () if isinstance(owned[0].plot, HeatMap) and several else ("color",)
    if isinstance(owned[0].plot, Chart):
        shared = ("color", "shape", "strokeDash")
    remarks = tuple(dict.fromkeys(note for own in groups.values() for note in notes(own)))
    layout = Layout(title, remarks, shared, overlaid and len(depths) > 1)
    spec, svg = laid_out(layout, panels, columns, width)
    return Figure(name, spec, _data(owned), svg)


def _data(owned: Sequence[Owned]) -> pd.DataFrame:
    """Return the table behind plots, its columns named as their axes are."""
    frames = []
    for one in owned:
        frame = pd.DataFrame(rows(one.plot))
        known = {name: called for name, called in titles(one.plot).items() if name in frame}
        frame = frame[list(known)].rename(columns=known)
        frame.insert(0, "plot", one.plot.title)
        frame.insert(0, "run", one.name)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _columns(plot: Plot, panels: int, width: float) -> int:
    """Return how many panels stand beside each other."""
    narrow = width < (COLUMN_WIDTH + TEXT_WIDTH) / 2
    if panels == 1:
        return 1
    if isinstance(plot, Chart) and plot.sheet:
        return 2 if narrow or panels in (2, 4) else 3
    return 1 if narrow and panels <= 3 and not (isinstance(plot, HeatMap) and plot.square) else 2


def _height(plot: Plot, columns: int, results: int) -> float:
    """Return the height of a panel in inches; of a square map as a share of its width."""
    if isinstance(plot, HeatMap):
        named = not (plot.square or plot.upward)
        return 1.0 if plot.square else ROW * len(plot.rows) if named else 1.5
    if isinstance(plot, Bars):
        return len(plot.rows) * max(ROW, 0.07 * (results + 1))
    if isinstance(plot, Chart):
        return plot.height - 0.5 if columns == 1 else 1.1
    return 1.5


def _owned(given: Sequence[tuple[str, Document]]) -> list[Owned]:
    """Return every plot with a name of a file, and whose it is; results of one kind are rivals, others stand alone."""
    kinds = [document.kind for _, document in given]
    return [
        Owned(
            plot, plain(name), kinds[:number].count(document.kind), kinds.count(document.kind) == 1
        )
        for number, (name, document) in enumerate(given)
        for section in document.sections
        for plot in section.parts
        if isinstance(plot, Plot) and plot.name
    ]


def _groups(owned: Sequence[Owned]) -> Mapping[str, list[Owned]]:
    """Return plots by the title of their panel: charts that lie over each other share one."""
    several = len({(one.plot.title, one.plot.variant) for one in owned}) > 1
    found: dict[str, list[Owned]] = {}
    for one in owned:
        plot = one.plot
        together = isinstance(plot, Bars) or (isinstance(plot, Chart) and plot.overlaid)
        words = [] if together or one.alone else [one.name]
        if several or together:
            words.append(plot.title)
        words += [
            word for word in (plot.variant if several else "", getattr(plot, "choice", "")) if word
        ]
        found.setdefault(plain(", ".join(words)), []).append(one)
    return found


def _heading(given: Sequence[tuple[str, Document]]) -> str:
    """Return what one result is of; of several the data they share, as the legend has their names."""
    if len(given) == 1:
        name, document = given[0]
        return plain(" on ".join([name or document.title[0], *document.title[1:]]))
    last = {document.title[-1] for _, document in given if document.title}
    return plain(last.pop()) if len(last) == 1 else ""


def _grid(name: str, grid: TokenGrid, title: str, width: float) -> Figure:
    """Return a grid of predictions, broken into panels; of a text that was continued the new tokens alone."""
    kept = [i for i, column in enumerate(grid.columns) if column.marked] or range(len(grid.columns))
    most = max(1, int((width - 0.8) / TOKEN))
    chunks = [list(kept)[i : i + most] for i in range(0, len(kept), most)]
    grid = replace(grid, rows=grid.rows[:LINES])
    panels = [
        Panel("", _tokens(most), _grid_rows(grid, chunk), ROW * (len(grid.rows) + 1))
        for chunk in chunks
    ]
    layout = Layout(plain(title), GRID_NOTES, ("color",))
    spec, svg = laid_out(layout, panels, 1, width)
    data = pd.DataFrame([row for panel in panels for row in panel.rows if "value" in row])
    return Figure(name, spec, data, svg)


def _grid_rows(grid: TokenGrid, columns: Sequence[int]) -> list[dict[str, object]]:
    """Return a row for each cell of some columns of a grid, and one for each of their headings."""
    found: list[dict[str, object]] = [
        {"row": "", "column": place, "text": plain(grid.columns[i].text)}
        for place, i in enumerate(columns)
    ]
    for number, (head, cells) in enumerate(grid.rows):
        name = plain(head.text)
        for place, i in enumerate(columns):
            cell = cells[i]
            found.append(
                {
                    "row": name if name else f"{number}",
                    "column": place,
                    "text": plain(cell.text),
                    "value": cell.probability,
                    "settles": cell.settles,
                }  # fmt: skip
            )
    return found


def _tokens(most: int) -> dict[str, object]:
    """Return the specification of a panel of a grid of so many columns."""
    across = {
        "field": "column",
        "type": "ordinal",
        "axis": None,
        "scale": {"domain": list(range(most))},
    }
    down = {
        "field": "row",
        "type": "nominal",
        "sort": None,
        "axis": {"title": None, "labelLimit": 90},
    }
    color = {
        "field": "value",
        "type": "quantitative",
        "legend": None,
        "scale": {"domain": [0, 1], "range": CHANCES},
    }
    edge = {"condition": {"test": "datum.settles", "value": "#9a5b00"}, "value": "#e4e4e4"}
    size = {"condition": {"test": "datum.settles", "value": 1.2}, "value": 0.4}
    place = {"x": across, "y": down}
    cells = {"color": color, "stroke": edge, "strokeWidth": size}
    return {
        "layer": [
            {
                "transform": [{"filter": "isValid(datum.value)"}],
                "mark": "rect",
                "encoding": place | cells,
            },
            {
                "mark": {"type": "text", "fontSize": 6.5, "limit": POINTS * TOKEN - 4},
                "encoding": place | {"text": {"field": "text"}},
            },
        ]
    }


def _file(name: str) -> str:
    return re.sub(r"[^\w=.+-]+", "-", name)
