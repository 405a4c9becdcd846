"""A reading of the lens in a terminal: the answer, a coloured grid for each sample, and where predictions settle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from layerscope.logit_lens.reading import Reading
from layerscope.reports.sheets import SHOWN, TOLD, Cell, Head, Sheet, sheets
from layerscope.show.plain import plain
from layerscope.show.spark import bar

WIDEST = 10
"""Columns a token takes at most."""
TEXT = 300
"""Characters of a sample that are shown above its grid."""
PALE, STRONG = (244, 247, 251), (108, 163, 215)
"""Behind the least and the most probable predictions; black is read on both."""


def show(reading: Reading, console: Console | None = None) -> None:
    """Print a reading, its answer first; without colours a probability stands beside each prediction, in percent."""
    console = console or Console()
    coloured = console.is_terminal and console.color_system is not None
    console.print(Text(reading.summary, style="bold"))
    console.print(_heading(reading))
    console.print(Text(_key(reading, coloured), style="dim"))
    for sheet in sheets(reading):
        _title(console, sheet)
        for line in _lines(sheet, console.width, coloured):
            console.print(line, no_wrap=True, overflow="crop", crop=True)
    if len(reading.samples) > SHOWN and reading.kind != "class":
        console.print(Text(f"\n{len(reading.samples) - SHOWN:,} samples more are counted below", style="dim"))
    _curve(console, reading)
    for note in reading.notes:
        console.print(Text(plain(note), style="dim"))


def _heading(reading: Reading) -> Text:
    facts = [f"{reading.depth} layers"]
    if reading.part != "model":
        facts.append(reading.part)
    if reading.data is not None:
        facts.append(f"{len(reading.samples):,} samples of {plain(reading.data)}")
    return Text.assemble((plain(reading.model), "bold"), "".join(f" · {fact}" for fact in facts))


def _key(reading: Reading, coloured: bool) -> str:
    how = "The stronger the colour, the more probable" if coloured else "Numbers are percent"
    new = ("" if coloured else ", » where the model writes") if reading.continued else ""
    stays = "; underlined where a prediction begins to stay" if coloured else "; * where a prediction begins to stay"
    return f"{TOLD[reading.kind]} {how}{stays}{new}."


def _title(console: Console, sheet: Sheet) -> None:
    console.print()
    if not sheet.text:
        return
    text, new = (part if len(part) <= TEXT else f"{part[:TEXT]}…" for part in (sheet.text, sheet.continuation))
    title = [] if sheet.title == "prompt" else [(f"{sheet.title}: ", "bold")]
    console.print(Text.assemble(*title, text, (new, "bold underline")))


def _lines(sheet: Sheet, width: int, coloured: bool) -> Iterator[Text]:
    """Yield the lines of a sheet, its columns in chunks that fit the width."""
    labels = [sheet.corner, *(head.text for head, _ in sheet.rows), *(name for name, _ in sheet.foot)]
    left = min(max(12, width // 4), max(map(cell_len, labels)))
    facts = [(name, texts, min(WIDEST, max(map(cell_len, (name, *texts))))) for name, texts in sheet.facts]
    room = width - left - sum(size + 2 for _, _, size in facts)
    sizes = [_size(sheet, column, coloured) for column in range(len(sheet.columns))]
    for number, columns in enumerate(_chunks(sizes, room)):
        if number:
            yield Text("")
        yield from _chunk(sheet, columns, sizes, left, facts, coloured)


def _size(sheet: Sheet, column: int, coloured: bool) -> int:
    texts = [_marked(sheet.columns[column], coloured), *(texts[column] for _, texts in sheet.foot)]
    inside = (cell_len(_text(cells[column], coloured)) for _, cells in sheet.rows)
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
    sheet: Sheet,
    columns: Sequence[int],
    sizes: Sequence[int],
    left: int,
    facts: Sequence[tuple[str, tuple[str, ...], int]],
    coloured: bool,
) -> Iterator[Text]:
    """Yield a head, a line for each row, and the feet, of some columns."""
    head = Text(set_cell_size(sheet.corner, left), style="dim")
    for column in columns:
        style = "bold underline" if sheet.columns[column].marked else "bold"
        head.append(" ").append(_fit(_marked(sheet.columns[column], coloured), sizes[column]), style=style)
    yield head.append("".join(f"  {set_cell_size(name, size)}" for name, _, size in facts))
    for i, (row, cells) in enumerate(sheet.rows):
        line = Text(_fit(row.text, left), style="")
        for column in columns:
            line.append(" ").append(
                _fit(_text(cells[column], coloured), sizes[column]), style=_style(cells[column], coloured)
            )
        yield line.append("".join(f"  {_fit(texts[i], size)}" for _, texts, size in facts))
    for name, texts in sheet.foot:
        if not any(texts[column] for column in columns):
            continue
        line = Text(set_cell_size(name, left), style="dim")
        for column in columns:
            line.append(f" {_fit(texts[column], sizes[column])}")
        yield line


def _marked(head: Head, coloured: bool) -> str:
    return f"»{head.text}" if head.marked and not coloured else head.text


def _text(cell: Cell, coloured: bool) -> str:
    text = cell.text if cell_len(cell.text) <= WIDEST else f"{set_cell_size(cell.text, WIDEST - 1)}…"
    if coloured:
        return text
    return f"{text} {100 * cell.probability:.0f}{'*' if cell.settles else ''}"


def _fit(text: str, size: int) -> str:
    """Return a text of exactly so many columns of the terminal, a wide character counting two."""
    return set_cell_size(text, size) if cell_len(text) <= size else set_cell_size(text, size - 1) + "…"


def _style(cell: Cell, coloured: bool) -> str:
    if not coloured:
        return ""
    red, green, blue = (
        round(pale + cell.probability * (strong - pale)) for pale, strong in zip(PALE, STRONG, strict=True)
    )
    return f"#111111 on #{red:02x}{green:02x}{blue:02x}{' underline' if cell.settles else ''}"


def _curve(console: Console, reading: Reading) -> None:
    """Print the cumulative saturation curve, a bar for each layer."""
    noun = "new tokens" if reading.continued else "predictions"
    console.print(Text(f"\nSettled by layer (of {len(reading.counted):,} {noun})", style="bold"))
    for row in reading.cumulative.itertuples():
        share = float(row.share)
        console.print(Text(f"{row.layer:>5}  {share:>4.0%}  {bar(share, 1.0)}"), no_wrap=True)
