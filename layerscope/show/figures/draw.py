"""Which figures documents give, and their files, each as wide as a page's text and as one of its columns."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError, choices
from layerscope.show.document import Document, TokenGrid
from layerscope.show.figures import style
from layerscope.show.figures.charts import Owned, Panel, draw_charts
from layerscope.show.figures.maps import draw_bars, draw_boxes, draw_grid, draw_maps
from layerscope.show.plain import plain
from layerscope.show.plots import Bars, Boxes, Chart, HeatMap, Plot

Drawer = Callable[[float], Any]
"""Draws a figure of a width in inches."""
MOST_SINGLES = 20
"""Charts of sheets that get files of their own too, at most; `plot` draws any."""
KINDS: dict[type[Plot], Callable[..., Any]] = {
    HeatMap: draw_maps,
    Boxes: draw_boxes,
    Bars: draw_bars,
}


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
    written: list[Path] = []
    with style.styled():
        for name, drawer in figures(given):
            written += style.save(drawer(style.TEXT_WIDTH), target, name)
            written += style.save(drawer(style.COLUMN_WIDTH), target, f"{name}-column")
        panels = dict(singles(given))
        for name, drawer in panels.items() if len(panels) <= MOST_SINGLES else ():
            written += style.save(drawer(style.COLUMN_WIDTH), target, name)
    return written


def figure(document: Document, name: str | None = None, width: float | None = None) -> Any:
    """Return the figure of a document that has this name, or of a metric; by default the first there is."""
    members = document.members or (document,)
    given = [("" if len(members) == 1 else " on ".join(member.title), member) for member in members]
    alone = {single.removeprefix("curve-"): drawer for single, drawer in singles(given)} | dict(
        _single_maps(given)
    )
    found = dict(figures(given))
    found |= {single: drawer for single, drawer in alone.items() if single not in found}
    drawer = next(iter(found.values()), None) if name is None else found.get(name)
    if drawer is None and not found:
        raise LayerscopeError(f"the {document.kind} has no plot")
    if drawer is None:
        raise LayerscopeError(
            f"figure {name!r} does not exist{choices(str(name), found, 'there are')}"
        )
    with style.styled():
        return drawer(style.TEXT_WIDTH if width is None else width)


def figures(given: Sequence[tuple[str, Document]]) -> Iterator[tuple[str, Drawer]]:
    """Yield the name of each figure of several widths, and what draws it."""
    owned = _owned(given)
    names, title = _shared(given, owned)
    for key in dict.fromkeys(one.plot.sheet or one.plot.name for one in owned):
        own = [one for one in owned if (one.plot.sheet or one.plot.name) == key]
        if isinstance(own[0].plot, Chart):
            yield _file(key), partial(draw_charts, _panels(own), names, title)
        else:
            yield _file(key), partial(KINDS[type(own[0].plot)], own, title)
    for number, (name, document) in enumerate(given):
        for section in document.sections:
            for grid in [part for part in section.parts if isinstance(part, TokenGrid)][:1]:
                file = section.name if len(given) == 1 else f"{section.name}-{number + 1}"
                what = f"{name or document.title[0]}: {section.title[0].lower()}{section.title[1:]}"
                yield _file(file), partial(draw_grid, grid, what)


def singles(given: Sequence[tuple[str, Document]]) -> Iterator[tuple[str, Drawer]]:
    """Yield each panel of results that lie over each other as a figure of its own."""
    owned = _owned(given)
    names, title = _shared(given, owned)
    own = [
        one for one in owned if isinstance(one.plot, Chart) and one.plot.overlaid and one.plot.sheet
    ]
    panels = _panels(own)
    files = [charts[0].plot.name for _, charts in panels]
    for name, panel in zip(files, panels, strict=True):
        variant = panel[1][0].plot.variant.replace(", ", ",")
        unique = f"{name}-{variant}" if files.count(name) > 1 and variant else name
        yield _file(unique), partial(draw_charts, [panel], names, title)


def _single_maps(given: Sequence[tuple[str, Document]]) -> Iterator[tuple[str, Drawer]]:
    """Yield each kind of heat map of a sheet as a figure of its own."""
    owned = [one for one in _owned(given) if isinstance(one.plot, HeatMap) and one.plot.sheet]
    _, title = _shared(given, owned)
    for name in dict.fromkeys(one.plot.name for one in owned):
        yield (
            _file(name),
            partial(draw_maps, [one for one in owned if one.plot.name == name], title),
        )


def _owned(given: Sequence[tuple[str, Document]]) -> list[Owned]:
    """Return every plot with a name of a file, and whose it is; results of one kind are rivals, others stand alone."""
    kinds = [document.kind for _, document in given]
    return [
        Owned(plot, name, kinds[:number].count(document.kind), kinds.count(document.kind) == 1)
        for number, (name, document) in enumerate(given)
        for section in document.sections
        for plot in section.parts
        if isinstance(plot, Plot) and plot.name
    ]


def _panels(owned: Sequence[Owned]) -> list[Panel]:
    """Return charts by panel: those that lie over each other by title and variant, every other one by itself."""
    found: dict[tuple[str, ...], list[Owned]] = {}
    for one in owned:
        apart = () if one.plot.overlaid else (str(one.number),)
        found.setdefault((one.plot.title, one.plot.variant, *apart), []).append(one)
    titles = [title for title, *_ in found]
    panels: list[Panel] = []
    for (title, variant, *_), own in found.items():
        overlaid = own[0].plot.overlaid
        name = plain(
            f"{title} ({variant})" if variant and titles.count(title) > 1 and overlaid else title
        )
        if not overlaid and not own[0].alone:
            name = plain(own[0].name) + (f"\n{name}" if len(set(titles)) > 1 else "")
        panels.append((name if len(found) > 1 or overlaid else "", own))
    return panels


def _shared(given: Sequence[tuple[str, Document]], owned: Sequence[Owned]) -> tuple[list[str], str]:
    """Return the series that lie over each other anywhere, in one order for all figures, and the title of all.

    The title is what one result is of; of several the data they share, as the legend has their
    names.
    """
    charts = [one.plot for one in owned if isinstance(one.plot, Chart) and one.plot.overlaid]
    found = dict.fromkeys(series.name for chart in charts for series in chart.series)
    named = [name for name in found if name]
    names = [
        *([""] if "" in found and len(named) > 1 else []),
        *named,
    ]  # what has no name looks like the only one
    if len(given) == 1:
        name, document = given[0]
        return names, " on ".join([name or document.title[0], *document.title[1:]])
    last = {document.title[-1] for _, document in given if document.title}
    return names, last.pop() if len(last) == 1 else ""


def _file(name: str) -> str:
    return re.sub(r"[^\w=.+-]+", "-", name)
