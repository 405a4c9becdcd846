"""What a page holds, from documents: figures of their plots, tables of their rows, as templates and scripts need them.

Plots of one title are one figure, over or beside each other; tables of one name are one, each row
with its result.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from itertools import chain, count
from typing import Any, TypeVar

import pandas as pd

from layerscope.show.document import Cell, Document, Frame, Row, Sentences, Table
from layerscope.show.plots import Bars, Boxes, Chart, HeatMap, Meaning, Plot

Json = dict[str, Any]
T = TypeVar("T")
KINDS: dict[type[Plot], str] = {Chart: "chart", HeatMap: "map", Boxes: "boxes", Bars: "bars"}
SIDE_BY_SIDE = 3
"""Plots that hold one result each stand beside each other up to this many; then each offers the choice of a result."""
AROUND = {
    "title",
    "variant",
    "summary",
    "about",
    "note",
    "unit",
    "group",
    "name",
    "sheet",
    "height",
    "corner",
    "aside",
}
"""What is written around a plot or not shown on a page."""
NEEDED = {"x", "y", "series", "rows", "columns", "values", "boxes"}
DRAWN = ("kind", "title", "file", "unit", "choices", "places", "overlaid", "note")
"""What the script needs of a figure."""
FOLDED = 12
"""Figures of a section from which on its groups are folded."""
SHORT = 5
"""Characters of the names of layers and steps, at most."""


@dataclass(frozen=True)
class Named:
    """A document, its name among the others (by default what it is of), its number and that of its colour."""

    document: Document
    name: str = ""
    look: int | None = None
    number: int = 0

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


def figures(shown: Sequence[tuple[Named, Sequence[Plot]]]) -> Iterator[Json]:
    """Yield a figure for each title, of the plots that results have under it: what the template and the script need."""
    keys = in_order(
        [list(dict.fromkeys((plot.title, plot.variant) for plot in plots)) for _, plots in shown]
    )
    for key in keys:
        title, variant = key
        title += f" ({variant})" if variant and sum(other == title for other, _ in keys) > 1 else ""
        owned = [
            (m, plot) for m, plots in shown for plot in plots if (plot.title, plot.variant) == key
        ]
        several = len({member.number for member, _ in owned}) > 1
        seen = [
            f"{member.name}: {plot.summary}" if several else plot.summary
            for member, plot in owned
            if plot.summary
        ]
        noted = [(member.name, plot.note) for member, plot in owned if plot.note]
        notes = dict.fromkeys(
            note for _, note in noted
        )  # of several results with other notes each has its name
        notes = (
            dict.fromkeys(f"{name}: {note}" for name, note in noted) if len(notes) > 1 else notes
        )
        first = owned[0][1]
        overlaid = isinstance(first, Chart) and first.overlaid
        places = [0] if overlaid else _places(owned)
        names = first.rows if isinstance(first, HeatMap) else ()
        yield {
            "title": title,
            "kind": KINDS[type(first)],
            "name": first.name or title,
            "variant": variant,
            "file": re.sub(r"[^\w.-]+", "-", title.lower()).strip("-.")[:80],
            "summary": "; ".join(dict.fromkeys(seen)),
            "about": next(
                (plot.about for _, plot in owned if plot.about != Meaning()), first.about
            ),
            "unit": first.unit,
            "group": first.group,
            "note": "; ".join(notes),
            "choices": [_choice(*one) for one in owned],
            "places": places,
            "overlaid": overlaid,
            "choosable": not overlaid and len(owned) > 1,
            "wide": len(places) > 1 or any(len(name) > SHORT for name in names),
        }


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


def groups(found: Sequence[Json]) -> list[Json]:
    """Return figures in rows of cards, where they are many in groups by name."""
    if len(found) <= FOLDED:
        return [{"title": "", "rows": _rows(found)}]
    names = dict.fromkeys(figure["group"] for figure in found)
    return [
        {"title": name, "rows": _rows([figure for figure in found if figure["group"] == name])}
        for name in names
    ]


def _rows(found: Sequence[Json]) -> list[Sequence[Json]]:
    """Return small plots in one row, those of one result each in the next; of three of these the first by itself."""
    small = [figure for figure in found if figure["overlaid"]]
    wide = [figure for figure in found if not figure["overlaid"]]
    rows = (wide[:1], wide[1:]) if len(wide) == SIDE_BY_SIDE and not small else (small, wide)
    return [row for row in rows if row]


def _choice(member: Named, plot: Plot) -> Json:
    """Return a plot as the script draws it, without what is empty."""
    drawn = {name: entry for name, entry in _slim(plot).items() if name not in AROUND}
    return {"run": member.number, **drawn, "choice": plot.choice, "unit": plot.unit}


def _slim(value: Any) -> Any:
    if is_dataclass(value):
        kept = {
            n: v
            for n, v in vars(value).items()
            if n in NEEDED or not (v is None or v is False or v in ((), ""))
        }
        return {name: _slim(entry) for name, entry in kept.items()}
    nested = (
        isinstance(value, tuple)
        and value
        and (is_dataclass(value[0]) or isinstance(value[0], tuple))
    )
    return [_slim(entry) for entry in value] if nested else value


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
                "value": cell.value,
                "text": text,
                "marked": marked,
                **dict(cell.more),
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


def column(name: str, values: pd.Series) -> Json:
    """Return a column of a long frame, its texts as numbers of a list of texts, a constant once."""
    found: Json = {"name": name}
    if values.dtype == object or isinstance(values.dtype, pd.StringDtype):
        numbers, texts = pd.factorize(values)
        found["texts"] = list(texts)
        entries = [None if n < 0 else n for n in numbers.tolist()]
    else:
        entries = values.astype(object).where(values.notna(), None).tolist()
    same = entries and all(value == entries[0] for value in entries)
    return found | ({"all": entries[0]} if same else {"values": entries})
