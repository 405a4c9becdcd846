"""A document in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from layerscope.core.spelling import spelled
from layerscope.show.document import (
    MARK,
    Cell,
    Column,
    Document,
    Facts,
    Part,
    Row,
    Sentences,
    Table,
    TokenGrid,
)
from layerscope.show.grids import heat_map, print_predictions
from layerscope.show.plain import folded, plain
from layerscope.show.plots import HeatMap
from layerscope.show.spark import BAR_WIDTH, bar, spark

HEADING = 16
"""Characters of a line of a heading at most."""
NAME = 24
"""Characters of a line of a row's name where room is short."""
FREE = 10_000
"""Columns of a screen on which nothing is too wide."""
SENTENCE = 20
"""Characters of a line that a wrapped column needs at least."""


def show(document: Document, console: Console | None = None) -> None:
    """Print a document, the answer first; texts are printed as they are, never as markup."""
    console = console or Console()
    if document.answer:
        console.print(Text(plain(spelled(document.answer)), style="bold"))
    for reason in document.reasons:
        console.print(Text(plain(spelled(reason))))
    if document.title:
        console.print(_heading(document))
    for part in document.parts:
        _print_part(part, console)
    for note in document.notes:
        console.print(Text(plain(spelled(note)), style="dim"))
    for number, command in enumerate(document.commands):
        console.print(Text(f"{'     ' if number else 'next:'} {plain(command)}"), soft_wrap=True)


def _print_part(part: Part, console: Console) -> None:
    if isinstance(part, Table):
        _print_table(part, console)
    elif isinstance(part, Facts):
        _print_facts(part, console)
    elif isinstance(part, Sentences):
        _print_sentences(part, console)
    elif isinstance(part, HeatMap):
        console.print(Text(f"\n{plain(part.title)}", style="bold"))
        console.print(heat_map(part, console.width))
    elif isinstance(part, TokenGrid):
        print_predictions(part, console)


def _heading(document: Document) -> Text:
    """Return what the result is of, names in bold."""
    heading = Text(" on ").join(Text(plain(name), style="bold") for name in document.title)
    return heading.append("".join(f" · {plain(fact)}" for fact in document.facts))


def _print_facts(facts: Facts, console: Console) -> None:
    if facts.title:
        console.print(Text(f"\n{plain(facts.title)}", style="bold"))
    grid = Grid(show_header=False, box=None, pad_edge=False)
    grid.add_column(style="bold")
    grid.add_column()
    for name, fact in facts.entries:
        grid.add_row(Text(plain(name)), Text(plain(fact)))
    console.print(grid)


def _print_sentences(sentences: Sentences, console: Console) -> None:
    if not sentences.texts:
        return
    if sentences.title:
        console.print(Text(f"\n{sentences.title}", style="bold"))
    grid = Grid.grid(padding=(0, 1))
    for text in sentences.texts:
        grid.add_row("  •", Text(plain(spelled(text))))
    console.print(grid)


def _print_table(table: Table, console: Console) -> None:
    """Print a table; where it is too wide for the console, its narrow form instead, or its columns in groups."""
    if not table.rows:
        return
    tight = _width(table, console) > console.width
    fits = not tight or _width(table, console, tight) <= console.width
    if not fits and table.narrow:
        for narrow in table.narrow:
            _print_table(narrow, console)
        return
    for number, group in enumerate([table] if fits else _groups(table, console)):
        title = f"{table.title}, continued" if number else table.title
        console.print(Text(f"\n{plain(title)}", style="bold") if title else "")
        console.print(_grid(group, tight))
    if table.legend:
        legend = Text("\n".join(map(plain, table.legend)))
        console.print(Padding(legend, (0, 0, 0, 2), expand=False), style="dim")


def _groups(table: Table, console: Console) -> Iterator[Table]:
    """Yield a table's columns in groups that fit, the first column with each."""
    start = 1
    while start < len(table.columns):
        end = start + 1
        while end < len(table.columns) and _width(_part(table, start, end + 1), console, True) <= console.width:
            end += 1
        yield _part(table, start, end)
        start = end


def _part(table: Table, start: int, end: int) -> Table:
    """Return the first column and those from `start` to `end`."""
    rows = tuple(Row((row.cells[0], *row.cells[start:end]), row.marked, row.quiet) for row in table.rows)
    return Table(table.title, (table.columns[0], *table.columns[start:end]), rows)


def _width(table: Table, console: Console, tight: bool = False) -> int:
    """Return the columns of the screen that a table needs, sentences broken into short lines."""
    wide = console.measure(_grid(table, tight), options=console.options.update(width=FREE)).maximum
    for number, column in enumerate(table.columns):
        longest = max(len(row.cells[number].text) for row in table.rows) if column.wraps else 0
        wide -= max(0, longest - SENTENCE)
    return wide


def _grid(table: Table, tight: bool = False) -> Grid:
    """Return a table as rich draws it; a `tight` one folds headings to the width of their columns, and long names."""
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    drawn = [_column(column, [row.cells[i] for row in table.rows]) for i, column in enumerate(table.columns)]
    if tight and table.columns[0].align == "left":
        drawn[0] = [Text(folded(text.plain, NAME)) for text in drawn[0]]
    for number, column in enumerate(table.columns):
        justify = "right" if column.align == "right" else "left"
        # a name that leaves no room for the rest is broken, a number never
        folds = column.wraps or (number == 0 and column.align == "left")
        title = Text(_heading_of(plain(column.title), drawn[number] if tight else None))
        grid.add_column(title, justify=justify, no_wrap=not folds, overflow="fold")  # type: ignore[arg-type]
    for row, cells in zip(table.rows, zip(*drawn, strict=True), strict=True):
        grid.add_row(*cells, style="bold" if row.marked else "dim" if row.quiet else "")
    if any(column.shape for column in table.columns):
        shapes = (Text(spark(column.shape, column.log), style="cyan") for column in table.columns[1:])
        grid.add_row(Text("shape", style="dim"), *shapes)
    return grid


def _heading_of(title: str, cells: list[Text] | None) -> str:
    """Return a heading in lines, where cells are given no wider than these, unless a word is."""
    widest = HEADING if cells is None else max([0, *(cell.cell_len for cell in cells), *map(len, title.split())])
    return folded(title, min(HEADING, widest))


def _column(column: Column, cells: list[Cell]) -> list[Text]:
    """Return the cells of a column, numbers aligned at their points, details beside them, marks at the end."""
    texts = [plain(cell.text) for cell in cells]
    if column.align == "decimal":
        texts = _aligned(texts)
    texts = [f"{spark(cell.shape)} {text}" if cell.shape else text for cell, text in zip(cells, texts, strict=True)]
    details = [plain(cell.detail) for cell in cells]
    width = max(map(len, details), default=0)
    if width:
        texts = [f"{text} {detail:<{width}}" for text, detail in zip(texts, details, strict=True)]
    shares = [0.0 if cell.share is None else cell.share for cell in cells]
    if any(shares):
        width = max(map(len, texts))
        bars = (bar(share, max(shares)) for share in shares)
        texts = [f"{text:>{width}} {drawn:<{BAR_WIDTH}}" for text, drawn in zip(texts, bars, strict=True)]
    marks = any(cell.marked for cell in cells)
    return [_cell(cell, text, marks) for cell, text in zip(cells, texts, strict=True)]


def _cell(cell: Cell, text: str, marks: bool) -> Text:
    if not marks:
        return Text(text)
    style = "bold green" if cell.marked else ""
    return Text.assemble((text, style), (f" {MARK}" if cell.marked else "  ", style))


def _aligned(numbers: list[str]) -> list[str]:
    """Pad numbers so that their decimal points stand below each other."""
    parts = [text.partition(".") for text in numbers]
    left = max((len(whole) for whole, _, _ in parts), default=0)
    right = max((len(point + rest) for _, point, rest in parts), default=0)
    return [f"{whole:>{left}}{point + rest:<{right}}" for whole, point, rest in parts]
