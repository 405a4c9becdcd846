"""From the plots of documents to the figures of a page: those of one title together, over or beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from typing import Any

from layerscope.show.page.content import Figure, Group, Json, Member, in_order
from layerscope.show.plots import Bars, Boxes, Chart, HeatMap, Meaning, Plot

KINDS: dict[type[Plot], str] = {Chart: "chart", HeatMap: "map", Boxes: "boxes", Bars: "bars"}
SIDE_BY_SIDE = 3
"""Plots that hold one result each stand beside each other up to this many; then each offers the choice of a result."""
AROUND = {"title", "variant", "summary", "about", "note", "unit", "group", "name", "sheet", "height", "corner", "aside"}
"""What is written around a plot or not shown on a page."""
NEEDED = {"x", "y", "series", "rows", "columns", "values", "boxes"}
FOLDED = 12
"""Figures of a section from which on its groups are folded."""
Owned = tuple[Member, Plot]


def figures(shown: Sequence[tuple[Member, Sequence[Plot]]]) -> Iterator[Figure]:
    """Yield a figure for each title, of the plots that results have under it."""
    keys = in_order([list(dict.fromkeys((plot.title, plot.variant) for plot in plots)) for _, plots in shown])
    for title, variant in keys:
        owned = [(m, plot) for m, plots in shown for plot in plots if (plot.title, plot.variant) == (title, variant)]
        several = variant and sum(other == title for other, _ in keys) > 1
        yield _figure(f"{title} ({variant})" if several else title, owned)


def groups(found: Sequence[Figure]) -> tuple[Group, ...]:
    """Return figures in rows of cards, where they are many in groups by name."""
    if len(found) <= FOLDED:
        return (Group("", _rows(found)),)
    names = list(dict.fromkeys(figure.group for figure in found))
    return tuple(Group(name, _rows([figure for figure in found if figure.group == name])) for name in names)


def _rows(found: Sequence[Figure]) -> tuple[tuple[Figure, ...], ...]:
    """Return small plots in one row, those of one result each in the next; of three of these the first by itself."""
    small = tuple(figure for figure in found if figure.overlaid)
    wide = tuple(figure for figure in found if not figure.overlaid)
    rows = (wide[:1], wide[1:]) if len(wide) == SIDE_BY_SIDE and not small else (small, wide)
    return tuple(row for row in rows if row)


def _figure(title: str, owned: Sequence[Owned]) -> Figure:
    several = len({member.number for member, _ in owned}) > 1
    said = [f"{member.name}: {plot.summary}" if several else plot.summary for member, plot in owned if plot.summary]
    first = owned[0][1]
    about = next((plot.about for _, plot in owned if plot.about != Meaning()), first.about)
    overlaid = isinstance(first, Chart) and first.overlaid
    drawn: Json = {
        "choices": [_choice(*one) for one in owned],
        "places": [0] if overlaid else _places(owned),
        "overlaid": overlaid,
        "note": first.note,
    }
    summary = "; ".join(dict.fromkeys(said))
    return Figure(title, KINDS[type(first)], summary, drawn, about, first.unit, first.group)


def _choice(member: Member, plot: Plot) -> Json:
    """Return a plot as the script draws it, without what is empty."""
    drawn = {name: entry for name, entry in _slim(plot).items() if name not in AROUND}
    return {"run": member.number, **drawn, "choice": plot.choice, "unit": plot.unit}


def _slim(value: Any) -> Any:
    if is_dataclass(value):
        return {name: _slim(entry) for name, entry in vars(value).items() if _is_said(name, entry)}
    nested = isinstance(value, tuple) and value and (is_dataclass(value[0]) or isinstance(value[0], tuple))
    return [_slim(entry) for entry in value] if nested else value


def _is_said(name: str, value: object) -> bool:
    return name in NEEDED or (value is not None and value is not False and value not in ((), ""))


def _places(owned: Sequence[Owned]) -> list[int]:
    """Return which plots are shown at first: of several results one each, by what all have, where there is that."""
    by_member: dict[int, dict[str, int]] = {}
    for i, (member, plot) in enumerate(owned):
        by_member.setdefault(member.number, {})[plot.choice] = i
    if len(by_member) == 1:
        return list(range(len(owned)))[:SIDE_BY_SIDE]
    shared = [name for name in next(iter(by_member.values())) if all(name in found for found in by_member.values())]
    return [found[shared[0]] if shared else min(found.values()) for found in by_member.values()][:SIDE_BY_SIDE]
