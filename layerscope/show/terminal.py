"""A document in a terminal: sentences, tables and grids of predictions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from layerscope.core.errors import count, listed, spelled
from layerscope.show import document as doc
from layerscope.show.plain import folded, plain

SHORT = 8
"""Characters of a heading that stays in one line."""
HEADING = 16
"""Characters of a line of a heading at most."""
NAME = 24
"""Characters of a line of a row's name at most."""
FREE = 10_000
"""Columns of a screen on which nothing is too wide."""
SENTENCE = 20
"""Characters of a line that a wrapped column needs at least."""
MOST_TITLES, TITLE = 4, 40
"""How many titles of parts that are left out are named, and their characters at most."""
WIDEST = 10
"""Columns of the terminal that a token takes at most."""
TEXT = 300
"""Characters of a sample that are shown above its grid."""
PALE, STRONG = (244, 247, 251), (108, 163, 215)
"""Behind the least and the most probable predictions; black is read on both."""

Styled = tuple[str, str]
"""A text and its style."""


@dataclass(frozen=True)
class Widths:
    """Columns of the terminal that the names, each cell and each fact of a grid's lines take."""

    name: int
    cells: list[int]
    facts: list[int]


@dataclass(frozen=True)
class Line:
    """A line of a grid: its name, its cells, and the facts beside them."""

    name: Styled
    cells: list[Styled]
    facts: list[str]

    def printed(self, columns: Sequence[int], widths: Widths) -> Text:
        """Return the line with the cells of these columns."""
        name, style = self.name
        line = Text(_fit(name, widths.name), style=style)
        for column in columns:
            text, style = self.cells[column]
            line.append(" ").append(_fit(text, widths.cells[column]), style=style)
        # lines under the columns have no facts
        for fact, width in zip(self.facts, widths.facts, strict=bool(self.facts)):
            line.append(f"  {_fit(fact, width)}")
        return line


def show(
    document: doc.Document, console: Console | None = None, *, long: bool = True
) -> None:
    """Print a document, the answer first, and unless it is `long` only its leading parts; no text is read as markup."""
    console = console or Console()
    _print_opening(document, console)
    parts = document.parts if long or not document.lead else document.lead
    for part in parts:
        _print_part(part, console, long)
    for note in document.notes:
        console.print(Text(plain(spelled(note)), style="dim"))
    left_out = _left_out(document.parts, parts)
    if left_out:
        console.print(Text(f"--long also shows: {left_out}", style="dim"))
    for number, command in enumerate(document.commands):
        console.print(
            Text(f"{'     ' if number else 'next:'} {plain(command)}"), soft_wrap=True
        )


def _print_opening(document: doc.Document, console: Console) -> None:
    """Print the answer, its reasons, and what the result is of."""
    if document.answer:
        console.print(Text(plain(spelled(document.answer)), style="bold"))
    for reason in document.reasons:
        console.print(Text(plain(spelled(reason))))
    if document.title:
        heading = Text(" on ").join(
            Text(plain(name), style="bold") for name in document.title
        )
        console.print(
            heading.append("".join(f" · {plain(fact)}" for fact in document.facts))
        )


def _left_out(parts: Sequence[doc.Part], shown: Sequence[doc.Part]) -> str:
    """Return the titles of the parts that are not shown, in words; nothing where all are."""
    numbers = {id(part) for part in shown}
    printed = (doc.Table, doc.Facts, doc.Sentences, doc.TokenGrid)
    rest = [
        part for part in parts if isinstance(part, printed) and id(part) not in numbers
    ]
    if not rest:
        return ""
    names = dict.fromkeys(
        plain(part.title).partition(" · ")[0] for part in rest if part.title
    )
    short = [name if len(name) <= TITLE else f"{name[: TITLE - 1]}…" for name in names]
    return listed(short, MOST_TITLES) or "the rest"


def _print_part(part: doc.Part, console: Console, long: bool) -> None:
    """Print a part; plots are for pages and figures alone."""
    if isinstance(part, doc.Table) and part.rows:
        _print_table(part, console, long)
    elif isinstance(part, doc.Facts):
        _print_title(part.title, console)
        grid = Grid(show_header=False, box=None, pad_edge=False)
        grid.add_column(style="bold")
        for name, fact in part.entries:
            grid.add_row(Text(plain(name)), Text(plain(fact)))
        console.print(grid)
    elif isinstance(part, doc.Sentences) and part.texts:
        _print_title(part.title, console)
        grid = Grid.grid(padding=(0, 1))
        for text in part.texts:
            grid.add_row("  •", Text(plain(spelled(text))))
        console.print(grid)
    elif isinstance(part, doc.TokenGrid):
        _print_predictions(part, console)


def _print_title(title: str, console: Console) -> None:
    if title:
        console.print(Text(f"\n{plain(title)}", style="bold"))


def _print_table(table: doc.Table, console: Console, long: bool) -> None:
    """Print a table; where it is too wide for the console, its columns in groups.

    Unless all is wanted, only the first group is printed, and how many columns are left out.
    """
    table = _filled(table)
    groups = list(_groups(table, console))
    for number, group in enumerate(groups if long else groups[:1]):
        title = f"{table.title}, continued" if number else table.title
        console.print(Text(f"\n{plain(title)}", style="bold") if title else "")
        console.print(_grid(group))
    legend = [*table.legend]
    if len(groups) > 1 and not long:
        left_out = len(table.columns) - len(groups[0].columns)
        legend.append(f"--long also shows {count(left_out, 'more column')}.")
    if legend:
        lines = Text("\n".join(map(plain, legend)))
        console.print(Padding(lines, (0, 0, 0, 2), expand=False), style="dim")


def _filled(table: doc.Table) -> doc.Table:
    """Return a table without the columns in which no row has anything."""
    rest = range(1, len(table.columns))
    return _part(
        table, [i for i in rest if any(row.cells[i].text for row in table.rows)]
    )


def _groups(table: doc.Table, console: Console) -> Iterator[doc.Table]:
    """Yield a table's columns in groups that fit, the first column with each."""
    group: list[int] = []
    for column in range(1, len(table.columns)):
        wider = _part(table, [*group, column])
        if group and _width(wider, console) > console.width:
            yield _part(table, group)
            group = []
        group.append(column)
    yield _part(table, group)


def _part(table: doc.Table, columns: Sequence[int]) -> doc.Table:
    """Return the first column of a table, and these ones."""
    kept = (0, *columns)
    rows = tuple(
        replace(row, cells=tuple(row.cells[i] for i in kept)) for row in table.rows
    )
    return replace(table, columns=tuple(table.columns[i] for i in kept), rows=rows)


def _width(table: doc.Table, console: Console) -> int:
    """Return the columns of the screen that a table needs, sentences broken into short lines."""
    wide = console.measure(
        _grid(table), options=console.options.update(width=FREE)
    ).maximum
    for number, column in enumerate(table.columns):
        if column.wraps:
            longest = max(len(row.cells[number].text) for row in table.rows)
            wide -= max(0, longest - SENTENCE)
    return wide


def _grid(table: doc.Table) -> Grid:
    """Return a table as rich draws it, headings folded to the width of their columns, and long names."""
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    columns = []
    for number, column in enumerate(table.columns):
        cells = _column(column, [row.cells[number] for row in table.rows])
        is_name = number == 0 and column.align == "left"
        if is_name:
            cells = [Text(folded(text.plain, NAME)) for text in cells]
        columns.append(cells)
        justify: Literal["left", "right"] = (
            "right" if column.align == "right" else "left"
        )
        # a name that leaves no room for the rest is broken, a number never; a heading is no wider
        # than its cells, unless a word is
        title = plain(column.title)
        widths = [SHORT, *(text.cell_len for text in cells), *map(len, title.split())]
        heading = Text(folded(title, min(HEADING, max(widths))))
        can_break = column.wraps or is_name
        grid.add_column(
            heading, justify=justify, no_wrap=not can_break, overflow="fold"
        )
    for row, line in zip(table.rows, zip(*columns, strict=True), strict=True):
        grid.add_row(*line, style="bold" if row.marked else "dim" if row.quiet else "")
    return grid


def _column(column: doc.Column, cells: list[doc.Cell]) -> list[Text]:
    """Return the cells of a column, numbers aligned at their points, details beside them, marks at the end."""
    texts = [plain(cell.text) for cell in cells]
    if column.align == "decimal":
        texts = _aligned_at_points(texts)
    width = max(len(plain(cell.detail)) for cell in cells)
    if width:
        pairs = zip(texts, cells, strict=True)
        texts = [f"{text} {plain(cell.detail):<{width}}" for text, cell in pairs]
    if not any(cell.marked for cell in cells):
        return [Text(text) for text in texts]
    return [
        Text(f"{text} {doc.MARK}", "bold green") if cell.marked else Text(f"{text}  ")
        for cell, text in zip(cells, texts, strict=True)
    ]


def _aligned_at_points(texts: list[str]) -> list[str]:
    """Return numbers of one width, their points below each other."""
    parts = [text.partition(".") for text in texts]
    left = max(len(whole) for whole, _, _ in parts)
    right = max(len(point + rest) for _, point, rest in parts)
    return [f"{whole:>{left}}{point + rest:<{right}}" for whole, point, rest in parts]


def _print_predictions(grid: doc.TokenGrid, console: Console) -> None:
    """Print a grid; without colours a probability stands beside each prediction, in percent."""
    coloured = console.is_terminal and console.color_system is not None
    if grid.legend:
        key = "Numbers are percent; * where a prediction stops changing"
        key += ", » where the model continues" if grid.continuation else ""
        if coloured:
            key = "The stronger the colour, the more probable; underlined where a prediction stops changing"
        console.print(Text(f"{grid.legend} {key}.", style="dim"))
    console.print()
    text, new = (
        plain(part if len(part) <= TEXT else f"{part[:TEXT]}…")
        for part in (grid.text, grid.continuation)
    )
    if grid.title or text:
        title = [(grid.title + ": " * bool(text), "bold")] if grid.title else []
        console.print(Text.assemble(*title, text, (new, "bold underline")))
    for line in _lines(grid, console.width, coloured):
        console.print(line, no_wrap=True, overflow="crop", crop=True)


def _lines(grid: doc.TokenGrid, width: int, coloured: bool) -> Iterator[Text]:
    """Yield the lines of a grid, its columns in chunks that fit the width."""
    heads = [_heading(head, coloured) for head in grid.columns]
    top = Line((grid.corner, "dim"), heads, [name for name, _ in grid.facts])
    rows = _rows(grid, coloured)
    feet = [
        Line((name, "dim"), [(text, "") for text in texts], [])
        for name, texts in grid.foot
    ]
    facts = [
        min(WIDEST, max(map(cell_len, (name, *texts)))) for name, texts in grid.facts
    ]
    left = min(
        max(12, width // 4), max(cell_len(line.name[0]) for line in [top, *rows, *feet])
    )
    widths = Widths(left, _cell_widths([top, *feet], rows), facts)
    room = width - left - sum(size + 2 for size in facts)
    for number, columns in enumerate(_chunks(widths.cells, room)):
        if number:
            yield Text("")
        below = [
            foot for foot in feet if any(foot.cells[column][0] for column in columns)
        ]
        for line in [top, *rows, *below]:
            yield line.printed(columns, widths)


def _heading(head: doc.Head, coloured: bool) -> Styled:
    """Return the heading of a column; a generated token is underlined, without colours it has a sign before it."""
    if not head.marked:
        return head.text, "bold"
    return head.text if coloured else f"»{head.text}", "bold underline"


def _rows(grid: doc.TokenGrid, coloured: bool) -> list[Line]:
    """Return the lines of predictions, each with its facts beside it."""
    rows = []
    for i, (head, predictions) in enumerate(grid.rows):
        cells = [_predicted(cell, coloured) for cell in predictions]
        rows.append(Line((head.text, ""), cells, [texts[i] for _, texts in grid.facts]))
    return rows


def _cell_widths(headings: Sequence[Line], rows: Sequence[Line]) -> list[int]:
    """Return the width of each column: predictions are whole, what stands above and below them may be cut."""
    lengths = [
        [min(WIDEST, cell_len(text)) for text, _ in line.cells] for line in headings
    ]
    lengths += [[cell_len(text) for text, _ in line.cells] for line in rows]
    return [max(column) for column in zip(*lengths, strict=True)]


def _chunks(sizes: Sequence[int], room: int) -> Iterator[list[int]]:
    """Yield the numbers of columns that stand beside each other, a space before each; at least one."""
    chunk: list[int] = []
    used = 0
    for column, size in enumerate(sizes):
        if chunk and used + size + 1 > room:
            yield chunk
            chunk, used = [], 0
        chunk.append(column)
        used += size + 1
    yield chunk


def _predicted(cell: doc.Prediction, coloured: bool) -> Styled:
    """Return a prediction as it is printed, and on which colour."""
    text = _fit(cell.text, min(WIDEST, cell_len(cell.text)))
    if not coloured:
        return f"{text} {100 * cell.probability:.0f}{'*' if cell.settles else ''}", ""
    mixed = (
        round(pale + cell.probability * (strong - pale))
        for pale, strong in zip(PALE, STRONG, strict=True)
    )
    return (
        text,
        f"#111111 on #{bytes(mixed).hex()}{' underline' if cell.settles else ''}",
    )


def _fit(text: str, size: int) -> str:
    """Return a text that takes exactly this many columns of the terminal, a wide character counting two."""
    return (
        set_cell_size(text, size)
        if cell_len(text) <= size
        else set_cell_size(text, size - 1) + "…"
    )
