"""From the tables of documents to those of a page: those of one name together, a row's result beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from layerscope.show.document import Cell, Column, Frame, Table
from layerscope.show.page import content
from layerscope.show.page.content import Json, Member, in_order


def tables(shown: Sequence[tuple[Member, Sequence[Table | Frame]]]) -> Iterator[content.Table | content.LongTable]:
    """Yield a table for each name, of the rows that results have under it."""
    for name in in_order([[table.name for table in given] for _, given in shown]):
        owned = [(member, table) for member, given in shown for table in given if table.name == name]
        found = _long([(m, t) for m, t in owned if isinstance(t, Frame)]) or _table(
            [(m, t) for m, t in owned if isinstance(t, Table) and t.rows]
        )
        if found:
            yield found


def _table(owned: Sequence[tuple[Member, Table]]) -> content.Table | None:
    if not owned:
        return None
    titles = in_order([[(column.title, column.unit) for column in _readable(table)] for _, table in owned])
    rows = [
        {
            "run": member.number,
            "name": row.cells[0].text,
            "rank": _rank(row.cells[0], rank),
            "cells": _cells(table, row.cells, row.marked, titles),
        }
        for member, table in owned
        for rank, row in enumerate(table.rows)
    ]
    first = owned[0][1]
    heads = [{"title": title, "detail": unit} for title, unit in titles]
    legend = dict.fromkeys(text for _, table in owned for text in table.legend)
    return content.Table(first.name, first.title, " ".join(legend), first.columns[0].title, heads, rows)


def _readable(table: Table) -> list[Column]:
    """Return the columns after the first, without those of spark lines alone, which a page has as plots."""
    later = enumerate(table.columns[1:], 1)
    return [column for i, column in later if any(not row.cells[i].shape or row.cells[i].text for row in table.rows)]


def _rank(first: Cell, number: int) -> float:
    """Return where a row stands among those of all results: by the number it bears, else as it stands in its table."""
    return first.value if isinstance(first.value, (int, float)) and math.isfinite(first.value) else number


def _cells(table: Table, cells: tuple[Cell, ...], marked: bool, titles: list[tuple[str, str]]) -> list[Json | None]:
    """Return a row's cells below the titles that all tables have together."""
    known = {
        (column.title, column.unit): _cell(cell, column.unit, marked)
        for column, cell in zip(table.columns[1:], cells[1:], strict=True)
    }
    return [known.get(title) for title in titles]


def _cell(cell: Cell, unit: str, marked: bool) -> Json | None:
    if not cell.text or pd.isna(cell.value):
        return None
    text = cell.text.removesuffix(" %") if unit.startswith("%") else cell.text  # the column's head says so
    text = " ".join(filter(None, (text, cell.detail)))
    return {"value": cell.value, "text": text, "marked": marked or cell.marked, **dict(cell.more)}


def _long(owned: Sequence[tuple[Member, Frame]]) -> content.LongTable | None:
    """Return long frames of several results as one, the result's name first."""
    if not owned:
        return None
    frame = pd.concat([table.frame.assign(run=member.name) for member, table in owned], ignore_index=True)
    names = ["run", *(name for name in frame if name != "run")]
    owners = [member.number for member, table in owned for _ in range(len(table.frame))]
    first = owned[0][1]
    columns = [column(name, frame[name]) for name in names]
    return content.LongTable(first.name, first.title, first.lead, columns, owners, first.choose)


def column(name: str, values: pd.Series) -> Json:  # type: ignore[type-arg]
    """Return a column of a long frame, its texts as numbers of a list of texts."""
    if values.dtype == object or isinstance(values.dtype, pd.StringDtype):
        texts = list(values.dropna().unique())
        numbers: dict[Any, int] = {text: i for i, text in enumerate(texts)}
        return {"name": name, "texts": texts, **_short([numbers.get(value) for value in values])}
    return {"name": name, **_short([None if pd.isna(value) else value for value in values.tolist()])}


def _short(values: list[Any]) -> Json:
    """Return values as a list, or once where all are the same."""
    return {"all": values[0]} if values and all(value == values[0] for value in values) else {"values": values}
