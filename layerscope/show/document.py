"""What a result says of itself: the answer, sentences and tables, without a word on how they are drawn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

MARK = "◂"
"""What stands beside a marked cell."""
Align = Literal["left", "right", "decimal"]


@dataclass(frozen=True)
class Cell:
    """One entry of a table.

    `text` is what is shown, `detail` what stands beside it (a standard error), `value` the number behind it, for
    sorting and for CSV. A `marked` cell stands out from its column; `share` (0 … 1) is drawn as a bar.
    """

    text: str
    detail: str = ""
    value: float | str | None = None
    marked: bool = False
    share: float | None = None


EMPTY = Cell("")


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, how its cells are aligned, and the series it draws as a spark line, if any."""

    title: str
    align: Align = "right"
    shape: tuple[float, ...] = ()
    log: bool = False
    """Whether only a logarithmic spark line shows the shape."""


@dataclass(frozen=True)
class Row:
    """A row of a table; a `marked` row stands out, a `quiet` one is there for comparison, as the full model is."""

    cells: tuple[Cell, ...]
    marked: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns, of which the first names the row; `legend` says how to read them.

    Where a screen is too narrow for it, the tables of `narrow` are shown in its place, if there are any; else its
    columns are shown in groups, the first column with each.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    legend: tuple[str, ...] = ()
    narrow: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Facts:
    """Names and what is known of each."""

    entries: tuple[tuple[str, str], ...]
    title: str = ""


@dataclass(frozen=True)
class Sentences:
    """Sentences that stand by themselves, as findings do."""

    title: str
    texts: tuple[str, ...]


Part = Table | Facts | Sentences


@dataclass(frozen=True)
class Document:
    """A result as it is shown.

    `answer` answers the user's question in one line. `title` says what the result is of (a model, data), `facts` what
    else tells it from others, `reasons` are sentences that belong to the answer. `notes` are small print, `commands`
    what to type next.
    """

    answer: str
    title: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    parts: tuple[Part, ...] = field(default=())
    notes: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


def row(*entries: Cell | str, marked: bool = False, quiet: bool = False) -> Row:
    """Return a row of cells, texts among them becoming cells."""
    return Row(tuple(entry if isinstance(entry, Cell) else Cell(entry) for entry in entries), marked, quiet)


def columns(titles: Iterable[str], align: Align = "right") -> tuple[Column, ...]:
    """Return columns that are all aligned alike."""
    return tuple(Column(title, align) for title in titles)
