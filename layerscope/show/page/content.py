"""What a page holds, from documents: figures of their plots, tables of their rows, as templates and scripts need them.

Charts of one title lie over each other; every other plot is a figure by itself; tables of one name
are one, each row with its result.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import pandas as pd

from layerscope.core import folder_name
from layerscope.show.document import (
    Cell,
    Column,
    Document,
    Frame,
    Row,
    Sentences,
    Table,
)
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
SHORT = 5
"""Characters of the names of layers and steps, at most."""


@dataclass(frozen=True)
class Named:
    """A document, its name among the others (by default what it is of), and its number, which is that of its colour."""

    document: Document
    name: str = ""
    number: int = 0
    alone: bool = True
    """Whether there is no other of its kind."""

    @property
    def color(self) -> str:
        """What the result is drawn in."""
        return numbered(self.number).color

    @property
    def sign(self) -> str:
        """The shape of the dots of its lines, as a character."""
        return SIGNS[numbered(self.number).shape]

    @property
    def findings(self) -> list[str]:
        """What belongs to the answer, and what stands out."""
        texts = [*self.document.reasons]
        for part in self.document.parts:
            if isinstance(part, Sentences):
                texts += part.texts
        return texts


def in_order(lists: Iterable[Iterable[T]]) -> list[T]:
    """Return what is in any list once, what is new in a list after what stands before it there, or before the next."""
    merged: list[T] = []
    for entries in map(list, lists):
        shared = [merged.index(entry) for entry in entries if entry in merged]
        at = min(shared[:1], default=len(merged))
        for entry in entries:
            if entry not in merged:
                merged.insert(at, entry)
            at = merged.index(entry) + 1
    return merged


def figures(by_result: Sequence[Sequence[Owned]], names: list[str]) -> Iterator[Json]:
    """Yield a figure for each chart, of all results that have it, and for each other plot, as the page needs it."""
    keys = in_order(map(_key_of, plots) for plots in by_result)
    titles = [title for title, _ in keys]
    plots = [*chain.from_iterable(by_result)]
    for key in keys:
        title, variant = key
        rivals = [one for one in plots if _key_of(one) == key]
        if variant and titles.count(title) > 1:
            title = f"{title} ({variant})"
        if rivals[0].plot.overlaid:
            yield _figure(title, rivals, rivals, names)
            continue
        for one in rivals:
            words = [title, one.plot.choice]
            if not one.alone:
                words.append(one.name)
            yield _figure(", ".join(filter(None, words)), [one], rivals, names)


def _figure(
    title: str, owned: Sequence[Owned], rivals: Sequence[Owned], names: list[str]
) -> Json:
    """Return plots that lie over each other as a figure; their scales and legends are those of the `rivals`."""
    first: Plot = owned[0].plot
    room = WIDE
    if first.overlaid:
        room = CARD
    # rows by columns, which is shorter
    parts = [
        {"run": one.number, "columns": pd.DataFrame(rows(one)).to_dict("list")}
        for one in owned
    ]
    return {
        "title": title,
        "name": first.name or title,
        "file": folder_name(title.lower()),
        "summary": _by_result((one.name, one.plot.summary) for one in owned),
        "about": first.about,
        "unit": first.unit,
        "key": _key(owned),
        "spec": view(owned, names, room, rivals),
        "parts": parts,
        "wide": _is_wide(first),
        "names": titles(first),
        "tall": _tall(first),
        "square": isinstance(first, HeatMap) and first.square,
        "printed": _printed_width(first),
    }


def _key_of(one: Owned) -> tuple[str, str]:
    """Return what the plots of one figure have together."""
    return one.plot.title, one.plot.variant


def _by_result(texts: Iterable[tuple[str, str]]) -> str:
    """Return what is said of each result, with its name where several say different things.

    >>> _by_result([("one", "5 texts"), ("two", "6 texts")]), _by_result([("one", "5 texts"), ("two", "5 texts")])
    ('one: 5 texts; two: 6 texts', '5 texts')
    """
    said = [*dict.fromkeys(pair for pair in texts if pair[1])]
    different = dict.fromkeys(text for _, text in said)
    if len({name for name, _ in said}) > 1 and len(different) > 1:
        return "; ".join(map(": ".join, said))
    return "; ".join(different)


def _key(owned: Sequence[Owned]) -> str:
    """Return what the marks of a figure stand for, and how many samples it rests on."""
    texts = [*notes(owned)]
    if isinstance(owned[0].plot, Chart):
        counted = ((one.name, each.note) for one in owned for each in one.plot.series)
        texts.append(_by_result(counted))
    return " · ".join(filter(None, texts))


def _is_wide(plot: Plot) -> bool:
    """Return whether a figure needs the whole width, for the names of its rows."""
    if isinstance(plot, HeatMap):
        return max(map(len, plot.rows)) > SHORT
    return isinstance(plot, Bars)


def _tall(plot: Plot) -> int:
    """Return the height of a plot in pixels."""
    if isinstance(plot, Chart):
        return 190
    assert isinstance(plot, (HeatMap, Bars))
    if isinstance(plot, HeatMap) and (plot.square or plot.upward):
        return 250
    return max(90, 20 * len(plot.rows))


def _printed_width(plot: Plot) -> int:
    """Return from which width in pixels on there is room for the values in the cells of a map."""
    if not isinstance(plot, HeatMap):
        return 0
    return 130 + 7 * digits(plot) * len(plot.columns)


def anchor(taken: set[str], name: str) -> str:
    """Return what a part is linked by: its name, with a number where that is taken."""
    base = "-".join(re.findall(r"[\w.]+", name.lower())) or "part"
    free = base
    number = 1
    while free in taken:
        number += 1
        free = f"{base}-{number}"
    taken.add(free)
    return free


def tables(
    by_result: Sequence[tuple[Named, Sequence[Table | Frame]]],
) -> Iterator[Json]:
    """Yield a table for each name, of the rows that results have under it, as the script needs it."""
    names = in_order((table.name for table in members) for _, members in by_result)
    for name in names:
        frames = []
        filled = []
        for member, members in by_result:
            for table in members:
                if table.name != name:
                    continue
                if isinstance(table, Frame):
                    frames.append((member, table))
                elif table.rows:
                    filled.append((member, table))
        if frames:
            yield _long(frames)
        elif filled:
            yield _table(filled)


def _table(owned: Sequence[tuple[Named, Table]]) -> Json:
    """Return a table whose cells stand under `columns`; `head` names its first column."""
    first = owned[0][1]
    heads = in_order(map(_heading, table.columns[1:]) for _, table in owned)
    by_heading: dict[tuple[str, str], Json] = {}
    lines = []
    legend: list[str] = []
    for member, table in owned:
        legend += table.legend
        for column in table.columns:
            by_heading.setdefault(
                _heading(column),
                {
                    "title": column.title,
                    "detail": column.unit,
                    "number": column.align != "left",
                    "wraps": column.wraps,
                },
            )
        for number, row in enumerate(table.rows):
            line = {
                "run": member.number,
                "name": row.cells[0].text,
                "rank": _rank(row.cells[0], number),
                "cells": _cells(table, row, heads),
            }
            lines.append(line)
    return {
        "name": first.name,
        "title": first.title,
        "lead": " ".join(dict.fromkeys(legend)),
        "head": first.columns[0].title,
        "columns": [by_heading[head] for head in heads],
        "rows": lines,
        "long": False,
    }


def _heading(column: Column) -> tuple[str, str]:
    """Return what columns of several tables have together."""
    return column.title, column.unit


def _rank(first: Cell, number: int) -> float:
    """Return where a row stands among those of all results: by the number it bears, else as it stands in its table."""
    value = first.value
    if isinstance(value, (int, float)) and math.isfinite(value):
        return value
    return number


def _cells(table: Table, row: Row, heads: list[tuple[str, str]]) -> list[Json | None]:
    """Return a row's cells below the headings that all tables have together."""
    cells: dict[tuple[str, str], Json] = {}
    for column, cell in zip(table.columns[1:], row.cells[1:], strict=True):
        if not cell.text or pd.isna(cell.value):
            continue
        text = f"{cell.text} {cell.detail}".rstrip()
        if column.unit.startswith("%"):  # which the head says
            text = text.removesuffix("%").rstrip()
        cells[_heading(column)] = {
            "value": cell.value,
            "text": text,
            "marked": row.marked or cell.marked,
            **dict(cell.more),
        }
    return [*map(cells.get, heads)]


def _long(owned: Sequence[tuple[Named, Frame]]) -> Json:
    """Return long frames of several results by columns, the result's name first; `owners` says whose each row is."""
    first = owned[0][1]
    owners: list[int] = []
    frames = []
    for member, table in owned:
        owners += [member.number] * len(table.frame)
        frames.append(table.frame.assign(run=member.name))
    frame = pd.concat(frames, ignore_index=True)
    names = dict.fromkeys(["run", *frame])
    return {
        "name": first.name,
        "title": first.title,
        "lead": first.lead,
        "columns": [{"name": name, "values": frame[name].tolist()} for name in names],
        "owners": owners,
        "choose": first.choose,
        "long": True,
    }
