"""What a result says of itself: the answer, sentences, tables and charts, without a word on how they are drawn."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from layerscope.show.plots import Bars, Chart, HeatMap

if TYPE_CHECKING:
    import pandas as pd

MARK = "◂"
"""What stands beside a marked cell."""
Align = Literal["left", "right", "decimal"]


@dataclass(frozen=True)
class Cell:
    """One entry of a table.

    `text` is what is shown, `detail` what stands beside it (a standard error), `value` the number
    behind it, for sorting and for CSV, which has the numbers of `more` by name too; a page leaves a
    cell without one blank (`words` gives a text its own), but for the first of a row. A `marked`
    cell stands out from its column.
    """

    text: str
    detail: str = ""
    value: float | str | None = None
    marked: bool = False
    more: tuple[tuple[str, float], ...] = ()


EMPTY = Cell("")


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and how its cells are aligned.

    A column of a frame has the name of that as its `field`, and a `form` that writes a value;
    `factor` leads from values to those that a page sorts by and saves. Where a cell is more than
    that, `cell` makes it from its row.
    """

    title: str
    align: Align = "right"
    unit: str = ""
    wraps: bool = False
    """Whether its cells are sentences, which may be broken into lines."""
    field: str = ""
    form: Callable[[Any], str] = str
    factor: float = 1.0
    cell: Callable[[Any], Cell] | None = None

    def of(self, row: Mapping[str, Any]) -> Cell:
        """Return the cell of a row of a frame."""
        if self.cell is not None:
            return self.cell(row)
        value = row[self.field]
        return Cell(
            self.form(value), value=self.factor * value if self.factor != 1 else value
        )


@dataclass(frozen=True)
class Row:
    """A row of a table; a `marked` row stands out, a `quiet` one is there for comparison, as the full model is."""

    cells: tuple[Cell, ...]
    marked: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns, of which the first names the row; `legend` says how to read them."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    legend: tuple[str, ...] = ()
    name: str = ""
    """What a file of it is called; tables of one name in a section are one on a page."""

    @classmethod
    def of(
        cls,
        frame: "pd.DataFrame",
        columns: Sequence[Column],
        title: str,
        marked: str = "",
        **how: Any,
    ) -> "Table":
        """Return a row for each of a frame, under these columns; those whose field `marked` is true stand out."""
        rows = tuple(
            Row(
                tuple(column.of(row) for column in columns),
                marked=bool(row.get(marked)),
            )
            for row in frame.to_dict(orient="records")
        )
        return cls(title, tuple(columns), rows, **how)


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

    `text` is what was read, `continuation` what the model wrote after it. `foot` has lines of texts
    under the columns, `facts` columns of texts beside the rows; `legend` says what rows and columns
    are.
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


@dataclass(frozen=True)
class Frame:
    """A long frame, for a page's reader to filter, sort and save; `choose` are columns with a choice of values."""

    title: str
    lead: str
    name: str
    frame: "pd.DataFrame"
    choose: tuple[str, ...]


Part = Table | Facts | Sentences | Chart | HeatMap | Bars | TokenGrid


@dataclass(frozen=True)
class Section:
    """What stands on a page under one heading, and what figures are drawn of; `legend` says how to read all of it."""

    name: str
    title: str
    lead: str
    parts: tuple[Part | Frame, ...]
    legend: tuple[str, ...] = ()


@dataclass(frozen=True)
class Document:
    """A result as it is shown.

    `answer` answers the user's question in one line. `title` says what the result is of (a model,
    data), `facts` what else tells it from others, `reasons` are sentences that belong to the
    answer. `parts` are what a notebook shows, and a terminal with `--long`; else it shows the parts
    of `lead`, where there are any. `notes` are small print, `commands` what to type next.
    `sections` are what a page has instead of the parts other than sentences, and `details` what it
    has room for: how the result was made; `warnings` stand above the answer there. `kind` is what
    several of such results are called, `depth` that of the model. `members` are the results it is
    made of (pairs of runs, models): a page and figures show them in its place.
    """

    answer: str
    title: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    notes: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    details: tuple[Facts | Sentences, ...] = ()
    warnings: tuple[str, ...] = ()
    kind: str = "results"
    depth: int | None = None
    members: "tuple[Document, ...]" = ()
    lead: tuple[Part, ...] = ()


def row(*entries: Cell | str, marked: bool = False, quiet: bool = False) -> Row:
    """Return a row of cells, texts among them becoming cells."""
    return Row(
        tuple(entry if isinstance(entry, Cell) else Cell(entry) for entry in entries),
        marked,
        quiet,
    )


def words(text: str) -> Cell:
    """Return a cell of words, by which a page sorts and saves it."""
    return Cell(text, value=text)


def columns(titles: Iterable[str], align: Align = "right") -> tuple[Column, ...]:
    """Return columns that are all aligned alike."""
    return tuple(Column(title, align) for title in titles)
