"""What a result says of itself: the answer, sentences and tables, without a word on how they are drawn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Align = Literal["left", "right", "decimal"]


@dataclass(frozen=True)
class Cell:
    """One entry of a table.

    `text` is what is shown, `detail` what stands beside it (a standard error), `value` the number behind it, for
    sorting and for CSV. A `marked` cell stands out from its column; `share` (0 … 1) is drawn as a bar, `shape` as a
    spark line before the text.
    """

    text: str
    detail: str = ""
    value: float | str | None = None
    marked: bool = False
    share: float | None = None
    shape: tuple[float, ...] = ()


EMPTY = Cell("")


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, how its cells are aligned, and the series it draws as a spark line, if any."""

    title: str
    align: Align = "right"
    shape: tuple[float, ...] = ()
    log: bool = False
    """Whether only a logarithmic spark line shows the shape."""
    wraps: bool = False
    """Whether its cells are sentences, which may be broken into lines."""


@dataclass(frozen=True)
class Row:
    """A row of a table; a `marked` row stands out, a `quiet` one is there for comparison, as the full model is."""

    cells: tuple[Cell, ...]
    marked: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns, of which the first names the row; `legend` says how to read them.

    Where a screen is too narrow for it, `narrow` is shown in its place, if there is one; else its columns are shown in
    groups, the first column with each.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    legend: tuple[str, ...] = ()
    narrow: Table | None = None


@dataclass(frozen=True)
class Facts:
    """Names and what is known of each."""

    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Sentences:
    """Sentences that stand by themselves, as findings do."""

    title: str
    texts: tuple[str, ...]


@dataclass(frozen=True)
class HeatMap:
    """Numbers by row and column, drawn as shades of `low` … `high` where there is no room for digits.

    `corner` says what rows and columns are; `aside` is a heading and a few words on each row.
    """

    title: str
    corner: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    low: float = 0.0
    high: float = 1.0
    aside: tuple[str, tuple[str, ...]] = ("", ())


@dataclass(frozen=True)
class Head:
    """The heading of a row or column of predictions; a `marked` one was generated, `note` is small print."""

    text: str
    note: str = ""
    marked: bool = False


@dataclass(frozen=True)
class Prediction:
    """The likeliest token or class, its probability, and the likeliest few with theirs.

    `settles` marks the first layer from which the prediction never changes again.
    """

    text: str
    probability: float
    tops: tuple[tuple[str, float], ...]
    settles: bool = False


@dataclass(frozen=True)
class TokenGrid:
    """Predictions by row and column, coloured by probability.

    `text` is what was read, `continuation` what the model wrote after it. `foot` has lines of texts under the columns,
    `facts` columns of texts beside the rows; `legend` says what rows and columns are.
    """

    title: str
    text: str
    continuation: str
    corner: str
    columns: tuple[Head, ...]
    rows: tuple[tuple[Head, tuple[Prediction, ...]], ...]
    foot: tuple[tuple[str, tuple[str, ...]], ...] = ()
    facts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    legend: str = ""


Part = Table | Facts | Sentences | HeatMap | TokenGrid


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
