"""A document in a notebook: HTML in which every text is escaped."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from html import escape

from layerscope.show.document import (
    MARK,
    Cell,
    Document,
    Facts,
    Part,
    Row,
    Sentences,
    Table,
    TokenGrid,
)
from layerscope.show.plain import plain
from layerscope.show.plots import HeatMap, ends
from layerscope.show.spark import bar, spark

ALIGN = {"left": "left", "right": "right", "decimal": "right"}


class Shown(ABC):
    """A result that has a document, which notebooks show."""

    @abstractmethod
    def document(self) -> Document:
        """Return the answer, sentences and tables."""

    def _repr_html_(self) -> str:
        return html(self.document())


def html(document: Document) -> str:
    """Return a document as HTML without scripts and styles of its own, for the cell of a notebook."""
    # the classes keep a notebook from setting what stands between dollars as mathematics
    return f'<div class="layerscope tex2jax_ignore mathjax_ignore">{"".join(_pieces(document))}</div>'


def _pieces(document: Document) -> Iterator[str]:
    if document.answer:
        yield _tag("p", _tag("strong", _text(document.answer)))
    yield from (_tag("p", _text(reason)) for reason in document.reasons)
    if document.title:
        names = " on ".join(_tag("strong", _text(name)) for name in document.title)
        yield _tag("p", names + "".join(f" · {_text(fact)}" for fact in document.facts))
    for part in document.parts:
        yield from _part(part)
    yield from (_tag("p", _tag("small", _text(note))) for note in document.notes)
    if document.commands:
        yield _tag("pre", "\n".join(map(_text, document.commands)))


def _part(part: Part) -> Iterator[str]:
    if isinstance(part, Table):
        yield from _table(part)
    elif isinstance(part, Facts):
        yield _heading(part.title)
        rows = (_tag("th", _text(name), "left") + _tag("td", _text(fact), "left") for name, fact in part.entries)
        yield _rows(rows)
    elif isinstance(part, Sentences):
        yield from _sentences(part)
    elif isinstance(part, HeatMap):
        yield _heading(part.title)
        yield _rows(_heat_map(part))
    elif isinstance(part, TokenGrid):
        read = f"{_text(part.text)}{_tag('u', _text(part.continuation))}"
        yield _tag("p", f"{_tag('strong', _text(part.title))} {read}")
        yield _rows(_predictions(part))
        yield _tag("p", _tag("small", _text(part.legend)))


def _heat_map(part: HeatMap) -> Iterator[str]:
    title, words = part.aside
    low, high = ends([part])
    yield "".join(_tag("th", _text(name)) for name in (part.corner, *part.columns, *([title] if words else [])))
    for number, (name, values) in enumerate(zip(part.rows, part.values, strict=True)):
        digits = (f"{value:.2f}" if math.isfinite(value) else "–" for value in values)
        shares = ((value - low) / (high - low) for value in values)
        cells = map(_shaded, digits, shares)
        yield _tag("th", _text(name)) + "".join(cells) + (_tag("td", _text(words[number]), "left") if words else "")


def _predictions(part: TokenGrid) -> Iterator[str]:
    names = (part.corner, *(head.text for head in part.columns), *(name for name, _ in part.facts))
    yield "".join(_tag("th", _text(name)) for name in names)
    for number, (head, cells) in enumerate(part.rows):
        drawn = (_shaded(f"{cell.text}{'*' * cell.settles}", cell.probability) for cell in cells)
        facts = (_tag("td", _text(texts[number])) for _, texts in part.facts)
        yield _tag("th", _text(head.text)) + "".join(drawn) + "".join(facts)
    for name, texts in part.foot:
        yield _tag("th", _text(name)) + "".join(_tag("td", _text(text)) for text in texts)


def _shaded(text: str, share: float) -> str:
    """Return a cell whose background says how much of the most there is."""
    strength = min(1.0, max(0.0, share)) if math.isfinite(share) else 0.0
    return f'<td style="background: rgba(108, 163, 215, {strength:.2f})">{_text(text)}</td>'


def _rows(rows: Iterable[str]) -> str:
    return _tag("table", "".join(_tag("tr", row) for row in rows))


def _sentences(part: Sentences) -> Iterator[str]:
    if part.texts:
        yield _heading(part.title)
        yield _tag("ul", "".join(_tag("li", _text(text)) for text in part.texts))


def _table(table: Table) -> Iterator[str]:
    if not table.rows:
        return
    yield _heading(table.title)
    heads = (_tag("th", _text(column.title), ALIGN[column.align]) for column in table.columns)
    rows = [_tag("tr", _cells(table, row)) for row in table.rows]
    if any(column.shape for column in table.columns):
        shapes = (_tag("td", spark(column.shape, column.log), ALIGN[column.align]) for column in table.columns[1:])
        rows.append(_tag("tr", _tag("td", "shape", ALIGN[table.columns[0].align]) + "".join(shapes)))
    yield _tag("table", _tag("thead", _tag("tr", "".join(heads))) + _tag("tbody", "".join(rows)))
    yield from (_tag("p", _tag("small", _text(line))) for line in table.legend)


def _cells(table: Table, row: Row) -> str:
    most = [max((r.cells[i].share or 0.0 for r in table.rows), default=0.0) for i in range(len(table.columns))]
    found = []
    for column, cell, top in zip(table.columns, row.cells, most, strict=True):
        shown = _cell(cell, top)
        found.append(_tag("td", _tag("strong", shown) if row.marked or cell.marked else shown, ALIGN[column.align]))
    return "".join(found)


def _cell(cell: Cell, most: float) -> str:
    drawn = "" if cell.share is None else bar(cell.share, most)
    mark = MARK if cell.marked else ""
    return " ".join(filter(None, (spark(cell.shape), _text(cell.text), _text(cell.detail), drawn, mark)))


def _heading(title: str) -> str:
    return _tag("p", _tag("strong", _text(title))) if title else ""


def _text(text: str) -> str:
    """Return a text with every character that means something to HTML escaped."""
    return escape(plain(text))


def _tag(name: str, inside: str, align: str = "") -> str:
    style = f' style="text-align: {align}"' if align else ""
    return f"<{name}{style}>{inside}</{name}>"
