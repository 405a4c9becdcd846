"""A document in a notebook: HTML in which every text is escaped."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from html import escape

from layerscope.show.document import MARK, Cell, Document, Facts, Part, Sentences, Table, TokenGrid
from layerscope.show.numbers import bar, spark
from layerscope.show.plain import plain
from layerscope.show.plots import HeatMap, ends

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
    if isinstance(part, Table) and part.rows:
        yield _heading(part.title)
        yield _table(part)
        yield from (_tag("p", _tag("small", _text(line))) for line in part.legend)
    elif isinstance(part, Facts):
        yield _heading(part.title)
        yield _rows(_tag("th", _text(name), "left") + _tag("td", _text(fact), "left") for name, fact in part.entries)
    elif isinstance(part, Sentences) and part.texts:
        yield _heading(part.title)
        yield _tag("ul", "".join(_tag("li", _text(text)) for text in part.texts))
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
        cells = (_shaded(f"{v:.2f}" if math.isfinite(v) else "–", (v - low) / (high - low)) for v in values)
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


def _table(table: Table) -> str:
    aligned = [ALIGN[column.align] for column in table.columns]
    most = [max(row.cells[i].share or 0.0 for row in table.rows) for i in range(len(aligned))]
    heads = "".join(_tag("th", _text(column.title), ALIGN[column.align]) for column in table.columns)
    rows = [[_cell(cell, top, row.marked) for cell, top in zip(row.cells, most, strict=True)] for row in table.rows]
    if any(column.shape for column in table.columns):
        rows.append(["shape", *(spark(column.shape, column.log) for column in table.columns[1:])])
    lines = ("".join(_tag("td", text, align) for text, align in zip(row, aligned, strict=True)) for row in rows)
    body = "".join(_tag("tr", line) for line in lines)
    return _tag("table", _tag("thead", _tag("tr", heads)) + _tag("tbody", body))


def _cell(cell: Cell, most: float, marked: bool) -> str:
    drawn = "" if cell.share is None else bar(cell.share, most)
    mark = MARK if cell.marked else ""
    shown = " ".join(filter(None, (spark(cell.shape), _text(cell.text), _text(cell.detail), drawn, mark)))
    return _tag("strong", shown) if marked or cell.marked else shown


def _heading(title: str) -> str:
    return _tag("p", _tag("strong", _text(title))) if title else ""


def _text(text: str) -> str:
    """Return a text with every character that means something to HTML escaped."""
    return escape(plain(text))


def _tag(name: str, inside: str, align: str = "") -> str:
    style = f' style="text-align: {align}"' if align else ""
    return f"<{name}{style}>{inside}</{name}>"
