"""A document in a terminal: sentences, tables, heat maps and grids of predictions."""

import math
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
from layerscope.show.numbers import BAR_WIDTH, bar, spark
from layerscope.show.plain import folded, plain
from layerscope.show.plots import HeatMap, ends

HEADING = 16
"""Characters of a line of a heading at most."""
NAME = 24
"""Characters of a line of a row's name where room is short."""
FREE = 10_000
"""Columns of a screen on which nothing is too wide."""
SENTENCE = 20
"""Characters of a line that a wrapped column needs at least."""
MOST_TITLES, TITLE = 4, 40
"""How many titles of parts that are left out are named, and their characters at most."""
SHADES = "·░▒▓█"
CELL = 6
"""Characters of a value and the space before it."""
ASIDE = 16
"""Characters that the words beside a row take."""
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


def show(document: doc.Document, console: Console | None = None, *, long: bool = True) -> None:
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
        console.print(Text(f"{'     ' if number else 'next:'} {plain(command)}"), soft_wrap=True)


def _print_opening(document: doc.Document, console: Console) -> None:
    """Print the answer, its reasons, and what the result is of."""
    if document.answer:
        console.print(Text(plain(spelled(document.answer)), style="bold"))
    for reason in document.reasons:
        console.print(Text(plain(spelled(reason))))
    if document.title:
        heading = Text(" on ").join(Text(plain(name), style="bold") for name in document.title)
        console.print(heading.append("".join(f" · {plain(fact)}" for fact in document.facts)))


def _left_out(parts: Sequence[doc.Part], shown: Sequence[doc.Part]) -> str:
    """Return the titles of the parts that are not shown, in words; nothing where all are."""
    numbers = {id(part) for part in shown}
    titles = [plain(part.title) for part in parts if id(part) not in numbers]
    if not titles:
        return ""
    names = dict.fromkeys(title.partition(" · ")[0] for title in titles if title)
    short = [name if len(name) <= TITLE else f"{name[: TITLE - 1]}…" for name in names]
    return listed(short, MOST_TITLES) or "the rest"


def _print_part(part: doc.Part, console: Console, long: bool) -> None:
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
    elif isinstance(part, HeatMap):
        _print_title(part.title, console)
        console.print(_heat_map(part, console.width))
    elif isinstance(part, doc.TokenGrid):
        _print_predictions(part, console)


def _print_title(title: str, console: Console) -> None:
    if title:
        console.print(Text(f"\n{plain(title)}", style="bold"))


def _print_table(table: doc.Table, console: Console, long: bool) -> None:
    """Print a table; where it is too wide for the console, its narrow form instead, or its columns in groups.

    Unless all is wanted, only the first group is printed, and how many columns are left out.
    """
    table = _filled(table)
    tight = _width(table, console) > console.width
    fits = not tight or _width(table, console, tight) <= console.width
    if not fits and table.narrow:
        for narrow in table.narrow:
            _print_part(narrow, console, long)
        return
    groups = [table] if fits else list(_groups(table, console))
    for number, group in enumerate(groups if long else groups[:1]):
        title = f"{table.title}, continued" if number else table.title
        console.print(Text(f"\n{plain(title)}", style="bold") if title else "")
        console.print(_grid(group, tight))
    legend = [*table.legend]
    if len(groups) > 1 and not long:
        left_out = len(table.columns) - len(groups[0].columns)
        legend.append(f"--long also shows {count(left_out, 'more column')}.")
    if legend:
        lines = Text("\n".join(map(plain, legend)))
        console.print(Padding(lines, (0, 0, 0, 2), expand=False), style="dim")


def _filled(table: doc.Table) -> doc.Table:
    """Return a table without the columns in which no row has anything."""

    def is_filled(cell: doc.Cell) -> bool:
        return bool(cell.text or cell.shape or cell.share)

    kept = [
        i
        for i in range(len(table.columns))
        if i == 0 or any(is_filled(row.cells[i]) for row in table.rows)
    ]
    rows = tuple(replace(row, cells=tuple(row.cells[i] for i in kept)) for row in table.rows)
    return replace(table, columns=tuple(table.columns[i] for i in kept), rows=rows)


def _groups(table: doc.Table, console: Console) -> Iterator[doc.Table]:
    """Yield a table's columns in groups that fit, the first column with each."""
    start = 1
    while start < len(table.columns):
        end = start + 1
        while (
            end < len(table.columns)
            and _width(_part(table, start, end + 1), console, True) <= console.width
        ):
            end += 1
        yield _part(table, start, end)
        start = end


def _part(table: doc.Table, start: int, end: int) -> doc.Table:
    rows = tuple(
        doc.Row((row.cells[0], *row.cells[start:end]), row.marked, row.quiet) for row in table.rows
    )
    return doc.Table(table.title, (table.columns[0], *table.columns[start:end]), rows)


def _width(table: doc.Table, console: Console, tight: bool = False) -> int:
    """Return the columns of the screen that a table needs, sentences broken into short lines."""
    wide = console.measure(_grid(table, tight), options=console.options.update(width=FREE)).maximum
    for number, column in enumerate(table.columns):
        longest = max(len(row.cells[number].text) for row in table.rows) if column.wraps else 0
        wide -= max(0, longest - SENTENCE)
    return wide


def _grid(table: doc.Table, tight: bool = False) -> Grid:
    """Return a table as rich draws it; a `tight` one folds headings to the width of their columns, and long names."""
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    drawn = [
        _column(column, [row.cells[i] for row in table.rows])
        for i, column in enumerate(table.columns)
    ]
    if tight and table.columns[0].align == "left":
        drawn[0] = [Text(folded(text.plain, NAME)) for text in drawn[0]]
    for number, column in enumerate(table.columns):
        justify: Literal["left", "right"] = "right" if column.align == "right" else "left"
        # a name that leaves no room for the rest is broken, a number never
        folds = column.wraps or (number == 0 and column.align == "left")
        title, room = plain(column.title), HEADING
        if tight:  # no wider than the cells, unless a word is
            room = min(
                room, max([0, *(cell.cell_len for cell in drawn[number]), *map(len, title.split())])
            )
        grid.add_column(
            Text(folded(title, room)), justify=justify, no_wrap=not folds, overflow="fold"
        )
    for row, cells in zip(table.rows, zip(*drawn, strict=True), strict=True):
        grid.add_row(*cells, style="bold" if row.marked else "dim" if row.quiet else "")
    if any(column.shape for column in table.columns):
        shapes = (
            Text(spark(column.shape, column.log), style="cyan") for column in table.columns[1:]
        )
        grid.add_row(Text("shape", style="dim"), *shapes)
    return grid


def _column(column: doc.Column, cells: list[doc.Cell]) -> list[Text]:
    """Return the cells of a column, numbers aligned at their points, details beside them, marks at the end."""
    texts = [plain(cell.text) for cell in cells]
    if column.align == "decimal":
        texts = _aligned_at_points(texts)
    texts = [
        f"{spark(cell.shape)} {text}" if cell.shape else text
        for cell, text in zip(cells, texts, strict=True)
    ]
    texts = _with_details(texts, [plain(cell.detail) for cell in cells])
    texts = _with_bars(texts, [cell.share or 0.0 for cell in cells])
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


def _with_details(texts: list[str], details: list[str]) -> list[str]:
    """Return texts with their details beside them, where there are any."""
    width = max(map(len, details), default=0)
    if not width:
        return texts
    return [f"{text} {detail:<{width}}" for text, detail in zip(texts, details, strict=True)]


def _with_bars(texts: list[str], shares: list[float]) -> list[str]:
    """Return texts with bars beside them, the longest for the largest share, where there are any."""
    if not any(shares):
        return texts
    width = max(map(len, texts))
    bars = [bar(share, max(shares)) for share in shares]
    return [
        f"{text:>{width}} {drawn:<{BAR_WIDTH}}" for text, drawn in zip(texts, bars, strict=True)
    ]


def _heat_map(part: HeatMap, width: int) -> Text:
    """Return a map with digits where the window is wide enough, else with a shade for each value."""
    title, words = part.aside
    low, high = ends([part])
    left = max(CELL, *map(cell_len, (part.corner, *part.rows)))
    fits = left + CELL * len(part.columns) + ASIDE <= width
    across = f" {part.columns[0]} to {part.columns[-1]} across, {SHADES} from {low:g} to {high:g}"
    if fits:
        across = "".join(f"{name:>{CELL}}" for name in part.columns) + f"   {title}"

    def shown(value: float) -> str:
        if fits:
            # + 0.0: no minus before nothing
            digits = f"{round(value, 2) + 0.0:.2f}" if math.isfinite(value) else "–"
            return f"{digits:>{CELL}}"
        share = (value - low) / (high - low) if math.isfinite(value) else math.nan
        return (
            " "
            if math.isnan(share)
            else SHADES[max(0, min(len(SHADES) - 1, int(share * len(SHADES))))]
        )

    lines = [f"{part.corner:>{left}}{across}"]
    for number, (name, values) in enumerate(zip(part.rows, part.values, strict=True)):
        cells = ("" if fits else " ") + "".join(map(shown, values))
        lines.append(f"{name:>{left}}{cells}   {words[number] if words else ''}".rstrip())
    return Text("\n".join(map(plain, lines)), no_wrap=True)


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
    feet = [Line((name, "dim"), [(text, "") for text in texts], []) for name, texts in grid.foot]
    facts = [min(WIDEST, max(map(cell_len, (name, *texts)))) for name, texts in grid.facts]
    left = min(max(12, width // 4), max(cell_len(line.name[0]) for line in [top, *rows, *feet]))
    widths = Widths(left, _cell_widths([top, *feet], rows), facts)
    room = width - left - sum(size + 2 for size in facts)
    for number, columns in enumerate(_chunks(widths.cells, room)):
        if number:
            yield Text("")
        below = [foot for foot in feet if any(foot.cells[column][0] for column in columns)]
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
    lengths = [[min(WIDEST, cell_len(text)) for text, _ in line.cells] for line in headings]
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
    return text, f"#111111 on #{bytes(mixed).hex()}{' underline' if cell.settles else ''}"


def _fit(text: str, size: int) -> str:
    """Return a text that takes exactly this many columns of the terminal, a wide character counting two."""
    return (
        set_cell_size(text, size) if cell_len(text) <= size else set_cell_size(text, size - 1) + "…"
    )
