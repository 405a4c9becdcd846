"""Which figures documents give, and their files, each as wide as a page's text and as one of its columns."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from layerscope.core import LayerscopeError, choices
from layerscope.show.document import Document, TokenGrid
from layerscope.show.figure import (
    COLUMN_WIDTH,
    FORMATS,
    POINTS,
    TEXT_WIDTH,
    Figure,
    Panel,
    laid_out,
    surroundings,
)
from layerscope.show.lines import Room
from layerscope.show.looks import Owned, series_names
from layerscope.show.plain import plain
from layerscope.show.plots import Bars, Chart, HeatMap, Plot
from layerscope.show.rows import rows, titles
from layerscope.show.specification import notes, view

Drawer = Callable[[float], Figure]
"""Draws a figure of a width in inches."""
Named = Sequence[tuple[str, Document]]
"""Documents, each with its name."""
ROW = 0.15
"""Inches of a row that has a name."""
TOKENS, TOKEN_ROWS = 9, 40
"""Columns and rows of a grid of predictions that a figure has at most, and characters of a token."""


def draw(named: Named, folder: str | Path) -> list[Path]:
    """Draw the plots of documents, each with its name, into a folder and return the paths of the files.

    Plots of one `sheet` are panels of one figure; every other plot has a figure, with a panel for
    each result.
    """
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LayerscopeError(
            f"figures cannot be written to {str(folder)!r}: {error.strerror}; give another folder"
        ) from None
    files = {}
    for name, drawer in figures(named):
        files[name] = drawer(TEXT_WIDTH)
        files[f"{name}-column"] = drawer(COLUMN_WIDTH)
    return [
        figure.save(target / f"{name}.{kind}")
        for name, figure in files.items()
        for kind in FORMATS
    ]


def figure(document: Document, name: str | None, width: float | None) -> Figure:
    """Return the figure of a document that has this name, or of a metric; by default the first there is."""
    members = document.members or (document,)
    several = len(members) > 1
    named = [(" on ".join(member.title) * several, member) for member in members]
    drawers = dict(figures(named))
    for single, drawer in _by_name(named, lambda plot: plot.name * bool(plot.sheet)):
        drawers.setdefault(single.removeprefix("curve-"), drawer)
    if not drawers:
        raise LayerscopeError(f"the {document.kind} has no plot")
    if name is None:
        name = next(iter(drawers))
    if name not in drawers:
        raise LayerscopeError(
            f"figure {name!r} does not exist{choices(name, drawers, 'there are')}"
        )
    return drawers[name](width or TEXT_WIDTH)


def figures(named: Named) -> Iterator[tuple[str, Drawer]]:
    """Yield the name of each figure, and what draws it."""
    return _by_name(named, lambda plot: plot.sheet or plot.name)


def _by_name(
    named: Named, name_of: Callable[[Plot], str]
) -> Iterator[tuple[str, Drawer]]:
    """Yield a figure for each name of plots; those without one are left out."""
    owned = [*_owned(named)]
    names = series_names([one.plot for one in owned])
    title = _heading(named)
    by_name: dict[str, list[Owned]] = {}
    for one in owned:
        by_name.setdefault(name_of(one.plot), []).append(one)
    by_name.pop("", None)
    for name, members in by_name.items():
        drawer = partial(_sheet, name, members, names, title)
        yield re.sub(r"[^\w=.+-]+", "-", name), drawer


def _owned(named: Named) -> Iterator[Owned]:
    """Yield every plot, and whose it is; results of one kind are rivals, others stand alone."""
    kinds = [document.kind for _, document in named]
    for number, (name, document) in enumerate(named):
        kind = document.kind
        rank = kinds[:number].count(kind)
        alone = kinds.count(kind) == 1
        for section in document.sections:
            for part in section.parts:
                if isinstance(part, TokenGrid):
                    part = _as_map(part, section.name)
                if isinstance(part, Plot):
                    yield Owned(part, plain(name), rank, alone)


def _as_map(grid: TokenGrid, name: str) -> HeatMap:
    """Return the first predictions of a grid as a map; of a text that was continued those of the new tokens."""
    new = [i for i, head in enumerate(grid.columns) if head.marked]
    kept = (new or list(range(len(grid.columns))))[:TOKENS]
    lines = grid.rows[:TOKEN_ROWS]
    return HeatMap(
        title=grid.title or grid.text[:TOKEN_ROWS],
        note="the likeliest predictions; colour: their probability",
        name=name,
        rows=tuple(head.text or str(number) for number, (head, _) in enumerate(lines)),
        columns=tuple(f"{i} {grid.columns[i].text[:TOKENS]}" for i in kept),
        values=tuple(tuple(cells[i].probability for i in kept) for _, cells in lines),
        shown=tuple(tuple(cells[i].text[:TOKENS] for i in kept) for _, cells in lines),
    )


def _sheet(
    name: str, owned: Sequence[Owned], names: list[str], title: str, width: float
) -> Figure:
    """Return a figure of plots: those that lie over each other in one panel, every other one in its own."""
    first = owned[0].plot
    panels = _panels(owned)
    columns = _columns(first, len(panels), width)
    room = Room(POINTS * width / columns, POINTS * width)
    drawn = []
    remarks: list[str] = []
    for members in panels:
        plot = members[0].plot
        values = [row for one in members for row in rows(one)]
        shown = view(members, names, room, owned) | {"data": {"values": values}}
        square = isinstance(plot, HeatMap) and plot.square
        height = _height(plot, columns, len(members))
        drawn.append(Panel(_called(members, owned), shown, height, square))
        remarks += notes(members)
    shared = ["color"]
    if isinstance(first, Chart):
        shared = ["color", "shape", "strokeDash"]
    elif len({one.plot.title for one in owned}) > 1:
        shared = []
    percent = _by_percent(owned)
    around = surroundings(title, [*dict.fromkeys(remarks)], shared, percent, width)
    spec, svg = laid_out(around, drawn, columns, width)
    return Figure(name, spec, _data(owned), svg)


def _by_percent(owned: Sequence[Owned]) -> bool:
    """Return whether layers are counted in percent of depth: of models of several depths that lie over each other."""
    depths = set()
    for one in owned:
        if isinstance(one.plot, Chart) and one.plot.overlaid and not one.alone:
            depths.add(one.plot.x.depth)
    return len(depths - {None}) > 1


def _data(owned: Sequence[Owned]) -> pd.DataFrame:
    """Return the table behind plots, its columns named as their axes are."""
    frames = []
    for one in owned:
        names = titles(one.plot)
        frame = pd.DataFrame(rows(one))
        frame = frame.filter(["run", *names]).rename(columns=names)
        frame.insert(1, "plot", one.plot.title)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _columns(plot: Plot, panels: int, width: float) -> int:
    """Return how many panels stand beside each other."""
    if panels == 1:
        return 1
    narrow = width < (COLUMN_WIDTH + TEXT_WIDTH) / 2
    is_chart = isinstance(plot, Chart)
    if is_chart and plot.sheet and not narrow and panels not in (2, 4):
        return 3
    if is_chart and narrow and not plot.sheet:
        return 1
    return 2


def _height(plot: Plot, columns: int, results: int) -> float:
    """Return the height of a panel in inches, but of a square one."""
    if isinstance(plot, Bars):
        return len(plot.rows) * max(ROW, 0.07 * (results + 1))
    if isinstance(plot, HeatMap) and not plot.upward:
        return ROW * len(plot.rows)
    if columns == 1 or isinstance(plot, HeatMap):
        return 1.5
    return 1.1


def _panels(owned: Sequence[Owned]) -> list[list[Owned]]:
    """Return plots by panel: those of several results that lie over each other share one."""
    panels: dict[tuple[str, str, int], list[Owned]] = {}
    for number, one in enumerate(owned):
        plot = one.plot
        if plot.overlaid or isinstance(plot, Bars):
            number = -1
        panels.setdefault((plot.title, plot.variant, number), []).append(one)
    return list(panels.values())


def _called(members: Sequence[Owned], owned: Sequence[Owned]) -> str:
    """Return the title of a panel, with what tells it from the others."""
    first = members[0]
    plot = first.plot
    variants = {one.plot.variant for one in owned if one.plot.title == plot.title}
    words = [plot.title]
    if len(variants) > 1:
        words.append(plot.variant)
    words.append(plot.choice)
    if len(members) == 1 and not first.alone:
        words.insert(0, first.name)
    return plain(", ".join(filter(None, words)))


def _heading(named: Named) -> str:
    """Return what one result is of; of several the data they share, as the legend has their names."""
    if len(named) == 1:
        name, document = named[0]
        title = document.title
        return plain(" on ".join((name or title[0], *title[1:])))
    last = {document.title[-1] for _, document in named if document.title}
    return plain(" ".join(last)) * (len(last) == 1)
