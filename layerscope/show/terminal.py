"""A document in a terminal: sentences, tables and grids of predictions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from layerscope.core.errors import count, spelled
from layerscope.show import document as doc
from layerscope.show.plain import folded, plain

SHORT = 8
"""Characters of a heading that stays in one line."""
HEADING = 16
"""Characters of a line of a heading at most."""
NAME = 24
"""Characters of a line of a row's name at most."""
SENTENCE = 20
"""Characters of a line that a wrapped column needs at least."""
GAP = 3
"""Columns of the terminal between two columns of a table."""
WIDEST = 10
"""Columns of the terminal that a token takes at most."""
TEXT = 300
"""Characters of a sample that are shown above its grid."""
PALE, STRONG = (244, 247, 251), (108, 163, 215)
"""Behind the least and the most probable predictions; black is read on both."""
KEY = "Numbers are percent; * where a prediction stops changing"
CONTINUES = ", » where the model continues"


@dataclass(frozen=True)
class Printed:
    """A column as it is printed: its heading, the text of each row, and the width it needs."""

    heading: Text
    cells: list[Text]
    width: int
    breaks: bool = False
    """Whether its texts may be broken into lines."""
    align: doc.Align = "left"


def show(document: doc.Document, console: Console, *, long: bool = True) -> None:
    """Print a document, the answer first, and unless it is `long` only its leading parts; no text is read as markup."""
    _print_opening(document, console)
    parts = document.parts
    if document.lead and not long:
        parts = document.lead
    for part in parts:
        _print_part(part, console, long)
    for note in document.notes:
        console.print(Text(plain(spelled(note)), style="dim"))
    if len(parts) < len(document.parts):
        console.print(Text("--long shows all of it", style="dim"))
    start = "next:"
    for command in document.commands:
        console.print(Text(f"{start:5} {plain(command)}"), soft_wrap=True)
        start = ""


def _print_opening(document: doc.Document, console: Console) -> None:
    """Print the answer, its reasons, and what the result is of."""
    if document.answer:
        console.print(Text(plain(spelled(document.answer)), style="bold"))
    for reason in document.reasons:
        console.print(Text(plain(spelled(reason))))
    if document.title:
        names = [Text(plain(name), style="bold") for name in document.title]
        heading = Text(" on ").join(names)
        for fact in document.facts:
            heading.append(f" · {plain(fact)}")
        console.print(heading)


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
    name, *columns = _columns(table)
    groups = [*_groups(name, columns, console.width)]
    legend = [*table.legend]
    if len(groups) > 1 and not long:
        left_out = len(columns) + 1 - len(groups[0])
        legend.append(f"--long also shows {count(left_out, 'more column')}.")
        groups = groups[:1]
    styles = [_style(row) for row in table.rows]
    title = plain(table.title)
    for group in groups:
        console.print(Text(f"\n{title}".rstrip("\n"), style="bold"))
        console.print(_grid(group, styles))
        title = f"{plain(table.title)}, continued"
    if legend:
        lines = Text("\n".join(map(plain, legend)))
        indented = Padding(lines, (0, 0, 0, 2), expand=False)
        console.print(indented, style="dim")


def _style(row: doc.Row) -> str:
    """Return how a row is set."""
    if row.marked:
        return "bold"
    return "dim" * row.quiet


def _groups(
    name: Printed, columns: Sequence[Printed], width: int
) -> Iterator[list[Printed]]:
    """Yield columns in groups that fit a width, the name of the rows with each."""
    group = [name]
    used = name.width
    for column in columns:
        if len(group) > 1 and used + GAP + column.width > width:
            yield group
            group = [name]
            used = name.width
        group.append(column)
        used += GAP + column.width
    yield group


def _grid(columns: Sequence[Printed], styles: Sequence[str]) -> Grid:
    """Return columns as rich draws them."""
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        grid.add_column(
            column.heading,
            justify="right" if column.align == "right" else "left",
            no_wrap=not column.breaks,
            overflow="fold",
        )
    rows = zip(*(column.cells for column in columns), strict=True)
    for cells, style in zip(rows, styles, strict=True):
        grid.add_row(*cells, style=style)
    return grid


def _columns(table: doc.Table) -> Iterator[Printed]:
    """Yield the columns of a table, but for those after the first in which no row has anything.

    Long names and headings are folded; a heading is no wider than its cells, unless a word is.
    """
    for number, column in enumerate(table.columns):
        cells = [row.cells[number] for row in table.rows]
        if number and not any(cell.text for cell in cells):
            continue
        texts = [*_texts(column, cells)]
        is_name = number == 0 and column.align == "left"
        if is_name:
            texts = [Text(folded(text.plain, NAME)) for text in texts]
        title = plain(column.title)
        widest = max(max(map(cell_len, text.plain.split("\n"))) for text in texts)
        words = max(map(len, title.split()), default=0)
        heading = folded(title, min(HEADING, max(SHORT, widest, words)))
        if column.wraps:
            widest = min(widest, SENTENCE)
        width = max(widest, *map(len, heading.split("\n")))
        # a name that leaves no room for the rest is broken, a number never
        breaks = column.wraps or is_name
        yield Printed(Text(heading), texts, width, breaks, column.align)


def _texts(column: doc.Column, cells: Sequence[doc.Cell]) -> Iterator[Text]:
    """Yield the cells of a column, numbers aligned at their points, details beside them, marks at the end."""
    texts = [plain(cell.text) for cell in cells]
    if column.align == "decimal":
        texts = _aligned_at_points(texts)
    details = [plain(cell.detail) for cell in cells]
    width = max(map(len, details))
    has_marks = any(cell.marked for cell in cells)
    for cell, text, detail in zip(cells, texts, details, strict=True):
        if width:
            text = f"{text} {detail:<{width}}"
        if cell.marked:
            yield Text(f"{text} {doc.MARK}", "bold green")
        else:
            yield Text(text + "  " * has_marks)


def _aligned_at_points(texts: list[str]) -> list[str]:
    """Return numbers of one width, their points below each other."""
    parts = [text.partition(".") for text in texts]
    left = max(len(whole) for whole, _, _ in parts)
    right = max(len(point + rest) for _, point, rest in parts)
    return [f"{whole:>{left}}{point + rest:<{right}}" for whole, point, rest in parts]


def _print_predictions(grid: doc.TokenGrid, console: Console) -> None:
    """Print a grid, a probability beside each prediction, in percent, and as its colour."""
    if grid.legend:
        key = KEY + CONTINUES * bool(grid.continuation)
        console.print(Text(f"{grid.legend} {key}.", style="dim"))
    console.print()
    text = _shortened(grid.text)
    new = _shortened(grid.continuation)
    title = grid.title
    if title and text:
        title += ": "
    if title or text:
        console.print(Text.assemble((title, "bold"), text, (new, "bold underline")))
    names = [_cut(head.text, NAME) for head, _ in grid.rows]
    names += [Text(name, "dim") for name, _ in grid.foot]
    name = _narrow(Text(grid.corner, "dim"), names)
    columns = []
    for number, head in enumerate(grid.columns):
        heading = _cut("»" * head.marked + head.text, WIDEST, "bold")
        cells = [_prediction(predictions[number]) for _, predictions in grid.rows]
        cells += [_cut(texts[number], WIDEST) for _, texts in grid.foot]
        columns.append(_narrow(heading, cells))
    for title, texts in grid.facts:
        cells = [_cut(text, WIDEST) for text in texts]
        columns.append(_narrow(Text(title), cells))
    styles = [""] * len(names)
    for group in _groups(name, columns, console.width):
        console.print(_grid(group, styles))


def _narrow(heading: Text, cells: list[Text]) -> Printed:
    """Return a column as wide as its longest text."""
    width = max(text.cell_len for text in (heading, *cells))
    return Printed(heading, cells, width)


def _prediction(cell: doc.Prediction) -> Text:
    """Return a prediction as it is printed, and on which colour."""
    shown = cell.probability
    mixed = [
        round(pale + shown * (strong - pale))
        for pale, strong in zip(PALE, STRONG, strict=True)
    ]
    text = _cut(cell.text, WIDEST, f"#111111 on #{bytes(mixed).hex()}")
    return text.append(f" {100 * shown:.0f}" + "*" * cell.settles)


def _shortened(text: str) -> str:
    """Return the beginning of a sample."""
    if len(text) > TEXT:
        text = f"{text[:TEXT]}…"
    return plain(text)


def _cut(text: str, size: int, style: str = "") -> Text:
    """Return a text that takes this many columns of the terminal at most, a wide character counting two."""
    shown = Text(text, style)
    shown.truncate(size, overflow="ellipsis")
    return shown
