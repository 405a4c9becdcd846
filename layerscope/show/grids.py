"""Heat maps and grids of predictions in a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from layerscope.show.document import Head, Prediction, TokenGrid
from layerscope.show.plain import plain
from layerscope.show.plots import HeatMap, ends

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


def heat_map(part: HeatMap, width: int) -> Text:
    """Return a map with digits where the window is wide enough, else with a shade for each value."""
    title, words = part.aside
    left = max(CELL, *map(cell_len, (part.corner, *part.rows)))
    fits = left + CELL * len(part.columns) + ASIDE <= width
    if fits:
        lines = [f"{part.corner:>{left}}" + "".join(f"{name:>{CELL}}" for name in part.columns) + f"   {title}"]
    else:
        low, high = ends([part])
        across = f"{part.columns[0]} to {part.columns[-1]} across"
        lines = [f"{part.corner:>{left}} {across}, {SHADES} from {low:g} to {high:g}"]
    for number, (name, line) in enumerate(zip(part.rows, part.values, strict=True)):
        cells = "".join(f"{_digits(v):>{CELL}}" for v in line) if fits else " " + "".join(_shade(v, part) for v in line)
        lines.append(f"{name:>{left}}{cells}   {words[number] if words else ''}".rstrip())
    return Text("\n".join(map(plain, lines)), no_wrap=True)


def _digits(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}" if math.isfinite(value) else "–"  # + 0.0: no minus before nothing


def _shade(value: float, part: HeatMap) -> str:
    if not math.isfinite(value):
        return " "
    low, high = ends([part])
    share = (value - low) / (high - low)
    return SHADES[max(0, min(len(SHADES) - 1, int(share * len(SHADES))))]


def print_predictions(grid: TokenGrid, console: Console) -> None:
    """Print a grid; without colours a probability stands beside each prediction, in percent."""
    coloured = console.is_terminal and console.color_system is not None
    if grid.legend:
        console.print(Text(f"{grid.legend} {_key(grid, coloured)}", style="dim"))
    console.print()
    text, new = (plain(part if len(part) <= TEXT else f"{part[:TEXT]}…") for part in (grid.text, grid.continuation))
    if grid.title or text:
        title = [(grid.title + ": " * bool(text), "bold")] if grid.title else []
        console.print(Text.assemble(*title, text, (new, "bold underline")))
    for line in _lines(grid, console.width, coloured):
        console.print(line, no_wrap=True, overflow="crop", crop=True)


def _key(grid: TokenGrid, coloured: bool) -> str:
    how = "The stronger the colour, the more probable" if coloured else "Numbers are percent"
    stays = "; underlined where a prediction begins to stay" if coloured else "; * where a prediction begins to stay"
    new = ", » where the model writes" if grid.continuation and not coloured else ""
    return f"{how}{stays}{new}."


def _lines(grid: TokenGrid, width: int, coloured: bool) -> Iterator[Text]:
    """Yield the lines of a grid, its columns in chunks that fit the width."""
    labels = [grid.corner, *(head.text for head, _ in grid.rows), *(name for name, _ in grid.foot)]
    left = min(max(12, width // 4), max(map(cell_len, labels)))
    facts = [(name, texts, min(WIDEST, max(map(cell_len, (name, *texts))))) for name, texts in grid.facts]
    room = width - left - sum(size + 2 for _, _, size in facts)
    sizes = [_size(grid, column, coloured) for column in range(len(grid.columns))]
    for number, columns in enumerate(_chunks(sizes, room)):
        if number:
            yield Text("")
        yield from _chunk(grid, columns, sizes, left, facts, coloured)


def _size(grid: TokenGrid, column: int, coloured: bool) -> int:
    texts = [_marked(grid.columns[column], coloured), *(texts[column] for _, texts in grid.foot)]
    inside = (cell_len(_text(cells[column], coloured)) for _, cells in grid.rows)
    return max([*(min(WIDEST, cell_len(text)) for text in texts), *inside])


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


def _chunk(
    grid: TokenGrid,
    columns: Sequence[int],
    sizes: Sequence[int],
    left: int,
    facts: Sequence[tuple[str, tuple[str, ...], int]],
    coloured: bool,
) -> Iterator[Text]:
    """Yield a head, a line for each row, and the feet, of some columns."""
    head = Text(set_cell_size(grid.corner, left), style="dim")
    for column in columns:
        style = "bold underline" if grid.columns[column].marked else "bold"
        head.append(" ").append(_fit(_marked(grid.columns[column], coloured), sizes[column]), style=style)
    yield head.append("".join(f"  {set_cell_size(name, size)}" for name, _, size in facts))
    for i, (row, cells) in enumerate(grid.rows):
        line = Text(_fit(row.text, left), style="")
        for column in columns:
            line.append(" ").append(
                _fit(_text(cells[column], coloured), sizes[column]), style=_style(cells[column], coloured)
            )
        yield line.append("".join(f"  {_fit(texts[i], size)}" for _, texts, size in facts))
    for name, texts in grid.foot:
        if not any(texts[column] for column in columns):
            continue
        line = Text(set_cell_size(name, left), style="dim")
        for column in columns:
            line.append(f" {_fit(texts[column], sizes[column])}")
        yield line


def _marked(head: Head, coloured: bool) -> str:
    return f"»{head.text}" if head.marked and not coloured else head.text


def _text(cell: Prediction, coloured: bool) -> str:
    text = cell.text if cell_len(cell.text) <= WIDEST else f"{set_cell_size(cell.text, WIDEST - 1)}…"
    if coloured:
        return text
    return f"{text} {100 * cell.probability:.0f}{'*' if cell.settles else ''}"


def _fit(text: str, size: int) -> str:
    """Return a text that takes exactly this many columns of the terminal, a wide character counting two."""
    return set_cell_size(text, size) if cell_len(text) <= size else set_cell_size(text, size - 1) + "…"


def _style(cell: Prediction, coloured: bool) -> str:
    if not coloured:
        return ""
    red, green, blue = (
        round(pale + cell.probability * (strong - pale)) for pale, strong in zip(PALE, STRONG, strict=True)
    )
    return f"#111111 on #{red:02x}{green:02x}{blue:02x}{' underline' if cell.settles else ''}"
