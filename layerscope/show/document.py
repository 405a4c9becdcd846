"""What a result says of itself: the answer, sentences, tables and charts, without a word on how they are drawn."""

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
    unit: str = ""
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

    Where a screen is too narrow for it, the tables of `narrow` are shown in its place, if there are any; else its
    columns are shown in groups, the first column with each.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    legend: tuple[str, ...] = ()
    narrow: tuple[Table, ...] = ()
    name: str = ""
    """What a file of it is called."""


@dataclass(frozen=True)
class Axis:
    """An axis of a chart: what it measures, and the range that is shown, None for that of the points."""

    title: str
    range: tuple[float, float] | None = None
    whole: bool = False
    """Whether only whole numbers lie on it, as layers do."""


Mark = Literal["line", "points", "bars", "guide"]
Tone = Literal["own", "rival", "ink", "muted"]


@dataclass(frozen=True)
class Series:
    """Points of a chart that belong together.

    `texts` say in full what each point is, `labels` stand beside them. `tone` is the colour: the result's own, that of
    its rival, or none. Points in `marked` are the chosen ones; those in `pale` recede.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    texts: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    mark: Mark = "line"
    tone: Tone = "own"
    marked: tuple[int, ...] = ()
    pale: tuple[int, ...] = ()


@dataclass(frozen=True)
class Meaning:
    """What a chart measures, which way is better, and where it comes from."""

    meaning: str
    direction: str
    source: str


@dataclass(frozen=True)
class Chart:
    """Series over two axes; `summary` says in a sentence what is seen, `note` what its marks stand for."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    summary: str
    about: Meaning
    note: str = ""
    height: float = 2.0
    """Height in a figure for print, in inches."""


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


Part = Table | Facts | Sentences | Chart | HeatMap | TokenGrid


@dataclass(frozen=True)
class Document:
    """A result as it is shown.

    `answer` answers the user's question in one line. `title` says what the result is of (a model, data), `facts` what
    else tells it from others, `reasons` are sentences that belong to the answer. `notes` are small print, `commands`
    what to type next, `details` what a page has room for: how the result was made.
    """

    answer: str
    title: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    parts: tuple[Part, ...] = field(default=())
    notes: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    details: tuple[Facts, ...] = ()


def row(*entries: Cell | str, marked: bool = False, quiet: bool = False) -> Row:
    """Return a row of cells, texts among them becoming cells."""
    return Row(tuple(entry if isinstance(entry, Cell) else Cell(entry) for entry in entries), marked, quiet)


def columns(titles: Iterable[str], align: Align = "right") -> tuple[Column, ...]:
    """Return columns that are all aligned alike."""
    return tuple(Column(title, align) for title in titles)
