"""Documents on the page: their charts beside each other and their tables below, one section for results of a kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import pandas as pd

from layerscope.reports.page.content import Figure, Json, Section, Table, beside
from layerscope.show.document import Cell, Document, Sentences, Table as Shown
from layerscope.show.plain import plain
from layerscope.show.plots import Chart, Series

GLYPHS: dict[str | int, str] = {"own": "●", "rival": "■", "ink": "◆"}


@dataclass(frozen=True)
class Held:
    """A document on the page: what it is called among the others, and its place among all that have a colour."""

    name: str
    place: int
    document: Document

    @property
    def findings(self) -> list[str]:
        """The answer, what belongs to it, and what stands out."""
        d = self.document
        found = [text for part in d.parts if isinstance(part, Sentences) for text in part.texts]
        return [d.answer, *d.reasons, *found]


def held(documents: Sequence[Document], first: int) -> list[Held]:
    """Return documents with their names, numbered where two have the same, in places from `first` on."""
    names = [" on ".join(map(plain, document.title)) for document in documents]
    return [
        Held(f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name, first + i, document)
        for i, (name, document) in enumerate(zip(names, documents, strict=True))
    ]


def held_members(shown: Sequence[Held]) -> list[Json]:
    """Return what the scripts know of each document: its name and colour."""
    return [{"name": e.name, "depth": 0, "alone": len(shown) == 1, "look": e.place, "scores": None} for e in shown]


def section(id: str, title: str, lead: str, shown: Sequence[Held]) -> Section:  # noqa: A002
    """Return the charts of documents, those of one title beside each other, and their tables, one of each title."""
    figures = tuple(_figures(shown))
    rows = (figures[:1], figures[1:])  # the first has a row of its own: it answers the question
    return Section(id, title, lead, tuple(row for row in rows if row), tuple(_tables(shown)))


def _figures(shown: Sequence[Held]) -> Iterator[Figure]:
    parts = [(entry, part) for entry in shown for s in entry.document.sections for part in s.parts]
    charts = [(entry, part) for entry, part in parts if isinstance(part, Chart)]
    for title in dict.fromkeys(chart.title for _, chart in charts):
        own = [(entry, chart) for entry, chart in charts if chart.title == title]
        summary = "; ".join(f"{entry.name}: {chart.summary}" for entry, chart in own)
        first = own[0][1]
        for figure in beside("chart", title, summary, [_choice(*one) for one in own], first.about):
            figure.drawn["note"] = _note(first)
            yield figure


def _choice(entry: Held, chart: Chart) -> Json:
    found = asdict(chart)
    return {"run": entry.place, "choice": "", "x": found["x"], "y": found["y"], "drawn": found["series"]}


def _note(chart: Chart) -> str:
    """Return which mark stands for what."""
    names = [f"{_glyph(series)} {series.name}" for series in chart.series if series.name]
    if any(series.marked for series in chart.series):
        names.append("○ chosen")
    return " · ".join([*names, *([chart.note] if chart.note else [])])


def _glyph(series: Series) -> str:
    return "▮" if series.mark == "bars" else GLYPHS[series.tone]


def _tables(shown: Sequence[Held]) -> Iterator[Table]:
    tables = [(entry, part) for entry in shown for part in entry.document.parts if isinstance(part, Shown)]
    for name in dict.fromkeys(table.name for _, table in tables):
        own = [(entry, table) for entry, table in tables if table.name == name]
        titles = list(dict.fromkeys((column.title, column.unit) for _, table in own for column in table.columns[1:]))
        rows = [
            {
                "run": entry.place,
                "name": row.cells[0].text,
                "place": place,
                "cells": _cells(table, row.cells, row.marked, titles),
            }
            for entry, table in own
            for place, row in enumerate(table.rows)
        ]
        if rows:
            first = own[0][1]
            heads = [{"title": title, "detail": unit} for title, unit in titles]
            yield Table(name, first.title, " ".join(first.legend), first.columns[0].title, heads, rows)


def _cells(table: Shown, cells: tuple[Cell, ...], marked: bool, titles: list[tuple[str, str]]) -> list[Json | None]:
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
    shown = " ".join(filter(None, (text, cell.detail)))
    return {"value": cell.value, "told": shown, "marked": marked or cell.marked}
