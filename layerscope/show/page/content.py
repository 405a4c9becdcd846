"""What a page holds, from documents: figures of their plots, tables of their rows, as templates and scripts need them.

Charts of one title lie over each other; every other plot is a figure by itself; tables of one name
are one, each row with its result.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pandas as pd

from layerscope.show.document import Cell, Document, Frame, Row, Sentences, Table
from layerscope.show.lines import Room
from layerscope.show.looks import SHAPES, Json, Owned, numbered
from layerscope.show.plots import Bars, Chart, HeatMap, Plot
from layerscope.show.rows import rows, titles
from layerscope.show.specification import digits, notes, view

T = TypeVar("T")
SIGNS = dict(zip(SHAPES, "●■▲◆✚", strict=True))
DRAWN = ("title", "file", "unit", "spec", "parts", "names", "tall", "square", "printed")
"""What the script needs of a figure."""
SIZE = 11
"""Pixels: the size of the text of a chart."""
CARD, WIDE = Room(240.0, 240.0), Room(430.0, 240.0)
"""Widths of a small and of a wide figure for which legends and labels are laid out, in points of paper."""
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
        sentences = [
            part for part in self.document.parts if isinstance(part, Sentences)
        ]
        return [
            *self.document.reasons,
            *(text for part in sentences for text in part.texts),
        ]


def in_order(lists: Iterable[Sequence[T]]) -> list[T]:
    """Return what is in any list once, what is new in a list after what stands before it there, or before the next."""
    merged: list[T] = []
    for entries in lists:
        at = next(
            (merged.index(entry) for entry in entries if entry in merged), len(merged)
        )
        for entry in entries:
            if entry not in merged:
                merged.insert(at, entry)
            at = merged.index(entry) + 1
    return merged


def figures(
    shown: Sequence[tuple[Named, Sequence[Plot]]], names: list[str]
) -> Iterator[Json]:
    """Yield a figure for each chart, of all results that have it, and for each other plot, as the page needs it."""
    keys = in_order(
        [
            list(dict.fromkeys((plot.title, plot.variant) for plot in plots))
            for _, plots in shown
        ]
    )
    for title, variant in keys:
        owned = [
            (member, plot)
            for member, plots in shown
            for plot in plots
            if (plot.title, plot.variant) == (title, variant)
        ]
        several = sum(other == title for other, _ in keys) > 1
        called = f"{title} ({variant})" if variant and several else title
        rivals = [Owned(plot, m.name, m.look or 0, m.alone) for m, plot in owned]
        if getattr(owned[0][1], "overlaid", False):
            yield _figure(called, owned, rivals, rivals, names)
            continue
        for (member, plot), one in zip(owned, rivals, strict=True):
            words = [called, plot.choice, "" if member.alone else member.name]
            yield _figure(
                ", ".join(filter(None, words)), [(member, plot)], [one], rivals, names
            )


def _figure(
    title: str,
    owned: Sequence[tuple[Named, Plot]],
    plots: Sequence[Owned],
    rivals: Sequence[Owned],
    names: list[str],
) -> Json:
    """Return plots that lie over each other as a figure."""
    first, overlaid = owned[0][1], getattr(owned[0][1], "overlaid", False)
    long_names = isinstance(first, HeatMap) and any(
        len(name) > SHORT for name in first.rows
    )
    parts = []
    for (member, _), one in zip(owned, plots, strict=True):
        marks = rows(one)
        parts.append(
            {"run": member.number, "columns": _columns(marks), "count": len(marks)}
        )
    return {
        "title": title,
        "name": first.name or title,
        "variant": first.variant,
        "file": re.sub(r"[^\w.-]+", "-", title.lower()).strip("-.")[:80],
        "summary": _by_member([(member, plot.summary) for member, plot in owned]),
        "about": first.about,
        "unit": first.unit,
        "key": _key(owned, plots),
        "spec": view(plots, names, CARD if overlaid else WIDE, rivals),
        "parts": parts,
        "wide": long_names or isinstance(first, Bars),
        "names": titles(first),
        "tall": _tall(first),
        "square": isinstance(first, HeatMap) and first.square,
        "printed": _printed_width(first),
    }


def _by_member(texts: Sequence[tuple[Named, str]]) -> str:
    """Return what is said of each result, with its name where several say different things."""
    said = [(member, text) for member, text in texts if text]
    if (
        len({text for _, text in said}) < 2
        or len({member.number for member, _ in said}) < 2
    ):
        return "; ".join(dict.fromkeys(text for _, text in said))
    return "; ".join(dict.fromkeys(f"{member.name}: {text}" for member, text in said))


def _key(owned: Sequence[tuple[Named, Plot]], plots: Sequence[Owned]) -> str:
    """Return what the marks of a figure stand for, and how many samples it rests on."""
    charts = [(member, plot) for member, plot in owned if isinstance(plot, Chart)]
    counted = [
        (member, series.note) for member, chart in charts for series in chart.series
    ]
    return " · ".join(filter(None, [*notes(plots), _by_member(counted)]))


def _tall(plot: Plot) -> int:
    """Return the height of a plot in pixels."""
    if isinstance(plot, HeatMap):
        return 250 if plot.square or plot.upward else max(90, 20 * len(plot.rows))
    return max(90, 20 * len(plot.rows)) if isinstance(plot, Bars) else 190


def _printed_width(plot: Plot) -> int:
    """Return from which width in pixels on there is room for the values in the cells of a map."""
    return (
        130 + 7 * digits(plot) * len(plot.columns) if isinstance(plot, HeatMap) else 0
    )


def _columns(records: Sequence[Json]) -> list[Json]:
    """Return rows by columns, each as short as it can be written."""
    frame = pd.DataFrame(records)
    return [column(str(name), frame[name]) for name in frame if name != "run"]


def anchor(taken: set[str], name: str) -> str:
    """Return what a part is linked by: its name, with a number where that is taken."""
    base = "-".join(re.findall(r"[\w.]+", name.lower())) or "part"
    free, number = base, 1
    while free in taken:
        number += 1
        free = f"{base}-{number}"
    taken.add(free)
    return free


def tables(shown: Sequence[tuple[Named, Sequence[Table | Frame]]]) -> Iterator[Json]:
    """Yield a table for each name, of the rows that results have under it, as the script needs it."""
    for name in in_order([[table.name for table in members] for _, members in shown]):
        owned = [
            (m, table)
            for m, members in shown
            for table in members
            if table.name == name
        ]
        frames = [(m, table) for m, table in owned if isinstance(table, Frame)]
        filled = [
            (m, table) for m, table in owned if isinstance(table, Table) and table.rows
        ]
        if frames:
            yield _long(frames)
        elif filled:
            yield _table(filled)


def _table(owned: Sequence[tuple[Named, Table]]) -> Json:
    """Return a table whose cells stand under `columns`; `head` names its first column."""
    first = owned[0][1]
    heads = in_order(
        [(c.title, c.unit) for c in table.columns[1:]] for _, table in owned
    )
    looks = {
        (c.title, c.unit): c for _, table in reversed(owned) for c in table.columns
    }
    lines = [
        {
            "run": member.number,
            "name": row.cells[0].text,
            "rank": _rank(row.cells[0], rank),
            "cells": _cells(table, row, heads),
        }
        for member, table in owned
        for rank, row in enumerate(table.rows)
    ]
    columns = [
        {
            "title": title,
            "detail": unit,
            "number": looks[title, unit].align != "left",
            "wraps": looks[title, unit].wraps,
        }
        for title, unit in heads
    ]
    return {
        "name": first.name,
        "title": first.title,
        "lead": " ".join(
            dict.fromkeys(text for _, table in owned for text in table.legend)
        ),
        "head": first.columns[0].title,
        "columns": columns,
        "rows": lines,
        "long": False,
    }


def _rank(first: Cell, number: int) -> float:
    """Return where a row stands among those of all results: by the number it bears, else as it stands in its table."""
    value = first.value
    return value if isinstance(value, (int, float)) and math.isfinite(value) else number


def _cells(table: Table, row: Row, heads: list[tuple[str, str]]) -> list[Json | None]:
    """Return a row's cells below the headings that all tables have together."""
    cells: dict[tuple[str, str], Json] = {}
    for column, cell in zip(table.columns[1:], row.cells[1:], strict=True):
        if cell.text and not pd.isna(cell.value):
            text = " ".join(filter(None, (cell.text, cell.detail)))
            if column.unit.startswith("%"):  # which the head says
                text = text.removesuffix("%").rstrip()
            cells[column.title, column.unit] = {
                "value": _short(cell.value),
                "text": text,
                "marked": row.marked or cell.marked,
                **{name: _short(value) for name, value in cell.more},
            }
    return [cells.get(head) for head in heads]


def _long(owned: Sequence[tuple[Named, Frame]]) -> Json:
    """Return long frames of several results by columns, the result's name first; `owners` says whose each row is."""
    frames = [table.frame.assign(run=member.name) for member, table in owned]
    frame, first = pd.concat(frames, ignore_index=True), owned[0][1]
    names = ["run", *(name for name in frame if name != "run")]
    return {
        "name": first.name,
        "title": first.title,
        "lead": first.lead,
        "columns": [column(name, frame[name]) for name in names],
        "owners": [
            member.number for member, table in owned for _ in range(len(table.frame))
        ],
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
    packed: Json = {"name": name}
    if values.dtype == object or isinstance(values.dtype, pd.StringDtype):
        numbers, texts = pd.factorize(values)
        packed["texts"] = list(texts)
        entries = [None if number < 0 else number for number in numbers.tolist()]
    else:
        entries = [_short(value) for value in values.tolist()]
    there = [row for row, value in enumerate(entries) if value is not None]
    if len(there) * RARE < len(entries):
        return packed | {"at": there, "values": [entries[row] for row in there]}
    if entries and all(value == entries[0] for value in entries):
        return packed | {"all": entries[0]}
    return packed | {"values": entries}
