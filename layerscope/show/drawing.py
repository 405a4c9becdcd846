"""Which figures documents give, and their files, each as wide as a page's text and as one of its columns."""

import re
from collections.abc import Callable, Iterator, Sequence
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


def figure(
    document: Document, name: str | None = None, width: float | None = None
) -> Figure:
    """Return the figure of a document that has this name, or of a metric; by default the first there is."""
    members = document.members or (document,)
    named = [
        ("" if len(members) == 1 else " on ".join(member.title), member)
        for member in members
    ]
    drawers = dict(figures(named))
    for single, drawer in _by_name(named, lambda plot: plot.name if plot.sheet else ""):
        drawers.setdefault(single.removeprefix("curve-"), drawer)
    if not drawers:
        raise LayerscopeError(f"the {document.kind} has no plot")
    name = next(iter(drawers)) if name is None else name
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
    owned = _owned(named)
    names = series_names([one.plot for one in owned])
    shown = [one for one in owned if name_of(one.plot)]
    for name in dict.fromkeys(name_of(one.plot) for one in shown):
        members = [one for one in shown if name_of(one.plot) == name]
        yield (
            re.sub(r"[^\w=.+-]+", "-", name),
            partial(_sheet, name, members, names, _heading(named)),
        )


def _owned(named: Named) -> list[Owned]:
    """Return every plot, and whose it is; results of one kind are rivals, others stand alone."""
    kinds = [document.kind for _, document in named]
    owned = []
    for number, (name, document) in enumerate(named):
        kind = document.kind
        rank, alone = kinds[:number].count(kind), kinds.count(kind) == 1
        for section in document.sections:
            parts = [
                _as_map(p, section.name) if isinstance(p, TokenGrid) else p
                for p in section.parts
            ]
            plots = [part for part in parts if isinstance(part, Plot)]
            owned += [Owned(plot, plain(name), rank, alone) for plot in plots]
    return owned


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
    drawn = [
        Panel(
            title=_called(members, owned),
            view=view(members, names, room, owned),
            rows=[row for one in members for row in rows(one)],
            tall=_height(members[0].plot, columns, len(members)),
            square=isinstance(members[0].plot, HeatMap) and members[0].plot.square,
        )
        for members in panels
    ]
    shared: tuple[str, ...] = ("color",)
    if isinstance(first, Chart):
        shared = ("color", "shape", "strokeDash")
    elif len({one.plot.title for one in owned}) > 1:
        shared = ()
    remarks = tuple(
        dict.fromkeys(note for members in panels for note in notes(members))
    )
    layout = Layout(title, remarks, shared, _by_percent(owned))
    spec, svg = laid_out(layout, drawn, columns, width)
    return Figure(name, spec, _data(owned), svg)


def _by_percent(owned: Sequence[Owned]) -> bool:
    """Return whether layers are counted in percent of depth: of models of several depths that lie over each other."""
    charts = [one for one in owned if isinstance(one.plot, Chart) and one.plot.overlaid]
    return len({one.plot.x.depth for one in charts if not one.alone} - {None}) > 1


def _data(owned: Sequence[Owned]) -> pd.DataFrame:
    """Return the table behind plots, its columns named as their axes are."""
    frames = []
    for one in owned:
        frame = pd.DataFrame(rows(one))
        names = {
            name: called for name, called in titles(one.plot).items() if name in frame
        }
        frame = frame[["run", *names]].rename(columns=names)
        frame.insert(1, "plot", one.plot.title)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _columns(plot: Plot, panels: int, width: float) -> int:
    """Return how many panels stand beside each other."""
    if panels == 1:
        return 1
    narrow = width < (COLUMN_WIDTH + TEXT_WIDTH) / 2
    if plot.sheet and isinstance(plot, Chart):
        return 2 if narrow or panels in (2, 4) else 3
    return 1 if narrow and isinstance(plot, Chart) else 2


def _height(plot: Plot, columns: int, results: int) -> float:
    """Return the height of a panel in inches; of a square map as a share of its width."""
    if isinstance(plot, HeatMap):
        named = not (plot.square or plot.upward)
        return 1.0 if plot.square else ROW * len(plot.rows) if named else 1.5
    if isinstance(plot, Bars):
        return len(plot.rows) * max(ROW, 0.07 * (results + 1))
    return 1.5 if columns == 1 else 1.1


def _panels(owned: Sequence[Owned]) -> list[list[Owned]]:
    """Return plots by panel: those of several results that lie over each other share one."""
    panels: dict[tuple[str, str, int], list[Owned]] = {}
    for number, one in enumerate(owned):
        together = isinstance(one.plot, Bars) or getattr(one.plot, "overlaid", False)
        key = one.plot.title, one.plot.variant, -1 if together else number
        panels.setdefault(key, []).append(one)
    return list(panels.values())


def _called(members: Sequence[Owned], owned: Sequence[Owned]) -> str:
    """Return the title of a panel, with what tells it from the others."""
    first = members[0]
    words = [first.plot.title]
    if (
        len({one.plot.variant for one in owned if one.plot.title == first.plot.title})
        > 1
    ):
        words.append(first.plot.variant)
    words.append(first.plot.choice)
    if len(members) == 1 and not first.alone:
        words.insert(0, first.name)
    return plain(", ".join(filter(None, words)))


def _heading(named: Named) -> str:
    """Return what one result is of; of several the data they share, as the legend has their names."""
    if len(named) == 1:
        name, document = named[0]
        return plain(" on ".join([name or document.title[0], *document.title[1:]]))
    last = {document.title[-1] for _, document in named if document.title}
    return plain(last.pop()) if len(last) == 1 else ""
