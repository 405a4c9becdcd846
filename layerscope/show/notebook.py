"""A document in a notebook: HTML in which every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from layerscope.show.document import (
    MARK,
    Cell,
    Document,
    Facts,
    HeatMap,
    Part,
    Prediction,
    Row,
    Sentences,
    Table,
    TokenGrid,
)
from layerscope.show.grids import colours, digits
from layerscope.show.plain import plain
from layerscope.show.spark import bar, spark

ALIGN = {"left": "left", "right": "right", "decimal": "right"}


class Shown:
    """A result that has a document, which notebooks show."""

    def document(self) -> Document:
        """Return the answer, sentences and tables."""
        raise NotImplementedError

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
        yield _rows(_tag("th", _text(name), "left") + _tag("td", _text(fact), "left") for name, fact in part.entries)
    elif isinstance(part, Sentences):
        yield from _sentences(part)
    elif isinstance(part, HeatMap):
        yield _heading(part.title)
        yield _rows(_heat_map(part))
    elif isinstance(part, TokenGrid):
        yield _heading(part.title)
        yield from (_tag("p", _text(text)) for text in (part.legend, part.text + part.continuation) if text)
        yield _rows(_predictions(part))


def _rows(rows: Iterable[str]) -> str:
    return _tag("table", "".join(_tag("tr", row) for row in rows))


def _heat_map(part: HeatMap) -> Iterator[str]:
    title, words = part.aside
    yield "".join(_tag("th", _text(name), "right") for name in (part.corner, *part.columns, title))
    for number, (name, values) in enumerate(zip(part.rows, part.values, strict=True)):
        cells = "".join(_tag("td", digits(value), "right") for value in values)
        yield _tag("th", _text(name), "right") + cells + _tag("td", _text(words[number] if words else ""), "left")


def _predictions(grid: TokenGrid) -> Iterator[str]:
    facts = [name for name, _ in grid.facts]
    names = (grid.corner, *facts, *(head.text for head in grid.columns))
    yield "".join(_tag("th", _text(name), "left") for name in names)
    for number, (head, cells) in enumerate(grid.rows):
        beside = "".join(_tag("td", _text(texts[number]), "left") for _, texts in grid.facts)
        yield _tag("th", _text(head.text), "left") + beside + "".join(map(_prediction, cells))
    for name, texts in grid.foot:
        yield _tag("th", _text(name), "left") + "".join(_tag("td", _text(text), "left") for text in texts)


def _prediction(cell: Prediction) -> str:
    ink, paper = colours(cell.probability)
    line = "; text-decoration: underline" if cell.settles else ""
    style = f"text-align: left; color: {ink}; background: {paper}{line}"
    return f'<td style="{style}" title="{cell.probability:.1%}">{_text(cell.text)}</td>'


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
    return " ".join(
        filter(None, (spark(cell.shape), _text(cell.text), _text(cell.detail), drawn, MARK if cell.marked else ""))
    )


def _heading(title: str) -> str:
    return _tag("p", _tag("strong", _text(title))) if title else ""


def _text(text: str) -> str:
    """Return a text with every character that means something to HTML escaped."""
    return escape(plain(text))


def _tag(name: str, inside: str, align: str = "") -> str:
    style = f' style="text-align: {align}"' if align else ""
    return f"<{name}{style}>{inside}</{name}>"
