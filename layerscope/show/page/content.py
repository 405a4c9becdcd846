"""What a page holds, from documents: figures of their plots, tables of their rows, as templates and scripts need them.

Plots of one title are one figure, over or beside each other; tables of one name are one, each row
with its result.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any, TypeVar

import pandas as pd

from layerscope.show.document import Cell, Document, Frame, Row, Sentences, Table
from layerscope.show.lines import Room
from layerscope.show.looks import SHAPES, Owned, numbered
from layerscope.show.plots import Bars, Chart, HeatMap, Meaning, Plot
from layerscope.show.rows import titles
from layerscope.show.specification import drawn, notes, view

Json = dict[str, Any]
T = TypeVar("T")
SIGNS = dict(zip(SHAPES, "●■▲◆✚", strict=True))
SIDE_BY_SIDE = 3
"""Plots that hold one result each stand beside each other up to this many; then each offers the choice of a result."""
DRAWN = (
    "title", "file", "unit", "spec", "choices", "places", "overlaid", "names", "tall", "square", "printed",
)  # fmt: skip
"""What the script needs of a figure."""
SIZE = 11
"""Pixels: the size of the text of a chart."""
CARD, WIDE = Room(240.0, 240.0), Room(430.0, 240.0)
"""Widths of a small and of a wide figure for which legends and labels are laid out, in points of paper."""
FOLDED = 12
"""Figures of a section beyond which the others are folded."""
RARE = 4
"""A column of which no more than one row in this many has a value is held by its rows."""
SHORT = 5
"""Characters of the names of layers and steps, at most."""


@dataclass(frozen=True)
class Named:
    """A document, its name among the others (by default what it is of), its number and that of its colour."""

    document: Document
    name: str = ""
    look: int | None = None
    number: int = 0
    alone: bool = True
    """Whether there is no other of its kind."""

    @property
    def color(self) -> str:
        """What the result is drawn in."""
        return numbered(self.look or 0).color

    @property
    def sign(self) -> str:
        """The shape of the dots of its lines, as a character."""
        return SIGNS[numbered(self.look or 0).shape]

    @property
    def findings(self) -> list[str]:
        """What belongs to the answer, and what stands out."""
        d = self.document
        return [
            *d.reasons,
            *(text for part in d.parts if isinstance(part, Sentences) for text in part.texts),
        ]


def in_order(lists: Iterable[Sequence[T]]) -> list[T]:
    """Return what is in any list once, what is new in a list after what stands before it there, or before the next."""
    found: list[T] = []
    for entries in lists:
        at = next((found.index(entry) for entry in entries if entry in found), len(found))
        for entry in entries:
            if entry not in found:
                found.insert(at, entry)
            at = found.index(entry) + 1
    return found


def figures(shown: Sequence[tuple[Named, Sequence[Plot]]], names: list[str]) -> Iterator[Json]:
    """Yield a figure for each title, of the plots that results have under it: what the template and the script need."""
    keys = in_order(
        [list(dict.fromkeys((plot.title, plot.variant) for plot in plots)) for _, plots in shown]
    )
    for key in keys:
        owned = [
            (m, plot) for m, plots in shown for plot in plots if (plot.title, plot.variant) == key
        ]
        yield _figure(_called(key, keys), owned, names)


def _called(key: tuple[str, str], keys: Sequence[tuple[str, str]]) -> str:
    """Return the title of a figure, with the variant where another has the same title."""
    title, variant = key
    alike = sum(other == title for other, _ in keys)
    return f"{title} ({variant})" if variant and alike > 1 else title


def _figure(title: str, owned: Sequence[tuple[Named, Plot]], names: list[str]) -> Json:
    first = owned[0][1]
    overlaid = isinstance(first, Chart) and first.overlaid
    plots = [Owned(plot, member.name, member.look or 0, member.alone) for member, plot in owned]
    together = overlaid and view(plots, names, CARD, plots)
    places = [0] if overlaid else _places(owned)
    long_names = isinstance(first, HeatMap) and any(len(name) > SHORT for name in first.rows)
    choices = []
    for (member, plot), one in zip(owned, plots, strict=True):
        own = {} if overlaid else {"spec": view([one], names, WIDE, plots)}
        found = drawn(one)
        choices.append(
            {
                "run": member.number,
                "choice": plot.choice,
                "columns": columns(found),
                "count": len(found),
                **own,
            }
        )
    abouts = [plot.about for _, plot in owned if plot.about != Meaning()]
    return {
        "title": title,
        "name": first.name or title,
        "variant": first.variant,
        "file": re.sub(r"[^\w.-]+", "-", title.lower()).strip("-.")[:80],
        "summary": _by_member([(member, plot.summary) for member, plot in owned]),
        "about": abouts[0] if abouts else first.about,
        "unit": first.unit,
        "key": _key(owned, plots),
        "spec": together or None,
        "choices": choices,
        "places": places,
        "overlaid": overlaid,
        "choosable": not overlaid and len(owned) > 1,
        "wide": len(places) > 1 or long_names,
        "names": titles(first),
        "tall": _tall(first),
        "square": isinstance(first, HeatMap) and first.square,
        "printed": _printed_width(first),
    }


def _by_member(texts: Sequence[tuple[Named, str]]) -> str:
    """Return what is said of each result, with its name where several say different things."""
    said = [(member, text) for member, text in texts if text]
    if len({text for _, text in said}) < 2 or len({member.number for member, _ in said}) < 2:
        return "; ".join(dict.fromkeys(text for _, text in said))
    return "; ".join(dict.fromkeys(f"{member.name}: {text}" for member, text in said))


def _key(owned: Sequence[tuple[Named, Plot]], plots: Sequence[Owned]) -> str:
    """Return what the marks of a figure stand for, and how many samples it rests on."""
    found = list(dict.fromkeys(note for one in plots for note in notes([one])))
    if isinstance(owned[0][1], Chart):
        counted = [
            (member, series.note)
            for member, plot in owned
            if isinstance(plot, Chart)
            for series in plot.series
        ]
        found.append(_by_member(counted))
    return " · ".join(filter(None, found))


def _tall(plot: Plot) -> int:
    """Return the height of a plot in pixels."""
    if isinstance(plot, (HeatMap, Bars)) and not (
        isinstance(plot, HeatMap) and (plot.square or plot.upward)
    ):
        return max(90, 20 * len(plot.rows))
    return 250 if isinstance(plot, HeatMap) else 190


def _printed_width(plot: Plot) -> int:
    """Return from which width in pixels on there is room for the values in the cells of a map."""
    if not isinstance(plot, HeatMap):
        return 0
    digits = max((len(text) for line in plot.shown for text in line), default=4)
    return 130 + 7 * digits * len(plot.columns)


def columns(found: Sequence[Json]) -> list[Json]:
    """Return rows by columns, each as short as it can be written."""
    frame = pd.DataFrame(found)
    return [column(str(name), frame[name]) for name in frame if name != "run"]


def anchor(taken: set[str], *names: str) -> str:
    """Return what a part is linked by, from the first of its names, with the next ones where that is taken."""
    ids = [
        "-".join(re.findall(r"[\w.]+", " ".join(names[:i]).lower()))
        for i in range(1, len(names) + 1)
    ]
    free = (
        found
        for found in chain(ids, (f"{ids[-1]}-{i}" for i in count(2)))
        if found and found not in taken
    )
    found = next(free)
    taken.add(found)
    return found


def groups(found: Sequence[Json]) -> list[list[Sequence[Json]]]:
    """Return figures in rows of cards; those beyond the first few are a group by themselves, which is folded."""
    return [_rows(part) for part in (found[:FOLDED], found[FOLDED:]) if part]


def _rows(found: Sequence[Json]) -> list[Sequence[Json]]:
    """Return small plots in one row, those of one result each in the next; of three of these the first by itself."""
    small = [figure for figure in found if figure["overlaid"]]
    wide = [figure for figure in found if not figure["overlaid"]]
    rows = (wide[:1], wide[1:]) if len(wide) == SIDE_BY_SIDE and not small else (small, wide)
    return [row for row in rows if row]


def _places(owned: Sequence[tuple[Named, Plot]]) -> list[int]:
    """Return which plots are shown at first: of several results one each, by what all have, where there is that."""
    by_member: dict[int, dict[str, int]] = {}
    for i, (member, plot) in enumerate(owned):
        by_member.setdefault(member.number, {})[plot.choice] = i
    if len(by_member) == 1:
        return list(range(len(owned)))[:SIDE_BY_SIDE]
    shared = [
        name
        for name in next(iter(by_member.values()))
        if all(name in found for found in by_member.values())
    ]
    return [found[shared[0]] if shared else min(found.values()) for found in by_member.values()][
        :SIDE_BY_SIDE
    ]


def tables(shown: Sequence[tuple[Named, Sequence[Table | Frame]]]) -> Iterator[Json]:
    """Yield a table for each name, of the rows that results have under it, as the script needs it."""
    for name in in_order([[table.name for table in given] for _, given in shown]):
        owned = [
            (member, table) for member, given in shown for table in given if table.name == name
        ]
        frames = [(m, t) for m, t in owned if isinstance(t, Frame)]
        filled = [(m, t) for m, t in owned if isinstance(t, Table) and t.rows]
        if frames:
            yield _long(frames)
        elif filled:
            yield _table(filled)


def _table(owned: Sequence[tuple[Named, Table]]) -> Json:
    """Return a table whose cells stand under `columns`; `head` names its first column."""
    first = owned[0][1]
    titles = in_order(  # without columns of spark lines alone, which a page has as plots
        [
            (column.title, column.unit)
            for i, column in enumerate(table.columns[1:], 1)
            if any(not row.cells[i].shape or row.cells[i].text for row in table.rows)
        ]
        for _, table in owned
    )
    looks = {
        (column.title, column.unit): column
        for _, table in reversed(owned)
        for column in table.columns
    }
    rows = [
        {
            "run": member.number,
            "name": row.cells[0].text,
            "rank": _rank(row.cells[0], rank),
            "cells": _cells(table, row, titles),
        }
        for member, table in owned
        for rank, row in enumerate(table.rows)
    ]
    return {
        "name": first.name,
        "title": first.title,
        "lead": " ".join(dict.fromkeys(text for _, table in owned for text in table.legend)),
        "head": first.columns[0].title,
        "columns": [
            {
                "title": key[0],
                "detail": key[1],
                "number": looks[key].align != "left",
                "wraps": looks[key].wraps,
            }
            for key in titles
        ],
        "rows": rows,
        "long": False,
    }


def _rank(first: Cell, number: int) -> float:
    """Return where a row stands among those of all results: by the number it bears, else as it stands in its table."""
    return (
        first.value
        if isinstance(first.value, (int, float)) and math.isfinite(first.value)
        else number
    )


def _cells(table: Table, row: Row, titles: list[tuple[str, str]]) -> list[Json | None]:
    """Return a row's cells below the titles that all tables have together."""
    known: dict[tuple[str, str], Json] = {}
    for column, cell in zip(table.columns[1:], row.cells[1:], strict=True):
        if cell.text and not pd.isna(cell.value):
            # the column's head has the unit
            text = cell.text.removesuffix(" %") if column.unit.startswith("%") else cell.text
            text = " ".join(filter(None, (text, cell.detail)))
            marked = row.marked or cell.marked
            known[column.title, column.unit] = {
                "value": _short(cell.value),
                "text": text,
                "marked": marked,
                **{name: _short(value) for name, value in cell.more},
            }
    return [known.get(title) for title in titles]


def _long(owned: Sequence[tuple[Named, Frame]]) -> Json:
    """Return long frames of several results by columns, the result's name first; `owners` says whose each row is."""
    frame = pd.concat(
        [table.frame.assign(run=member.name) for member, table in owned], ignore_index=True
    )
    first = owned[0][1]
    return {
        "name": first.name,
        "title": first.title,
        "lead": first.lead,
        "columns": [
            column(name, frame[name])
            for name in ["run", *(name for name in frame if name != "run")]
        ],
        "owners": [member.number for member, table in owned for _ in range(len(table.frame))],
        "choose": first.choose,
        "long": True,
    }


def _short(value: Any) -> Any:
    """Return a value as JSON can hold it, a whole number without a point."""
    if value is None or pd.isna(value) or value in (math.inf, -math.inf):
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value


def column(name: str, values: pd.Series) -> Json:
    """Return a column of a table, its texts as numbers of a list of texts, a constant once, rare values by row."""
    found: Json = {"name": name}
    if values.dtype == object or isinstance(values.dtype, pd.StringDtype):
        numbers, texts = pd.factorize(values)
        found["texts"] = list(texts)
        entries = [None if number < 0 else number for number in numbers.tolist()]
    else:
        entries = [_short(value) for value in values.tolist()]
    there = [row for row, value in enumerate(entries) if value is not None]
    if len(there) * RARE < len(entries):
        return found | {"at": there, "values": [entries[row] for row in there]}
    same = entries and all(value == entries[0] for value in entries)
    return found | ({"all": entries[0]} if same else {"values": entries})
