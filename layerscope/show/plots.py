"""Plots of a document by kind: charts over two axes, heat maps and bars, as numbers and words alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

NOTHING = 0.05
"""How far an axis or scale reaches to each side of values that do not differ."""


@dataclass(frozen=True)
class Axis:
    """An axis of a chart: what it measures, and the range that is shown, None for that of the points.

    A `whole` axis has only whole numbers. One of layers has the `depth` of their model: models of
    several depths lie over each other by percent of it. `scale` leads from values to what is shown
    (100 for shares in percent). `least` is the shortest range worth showing: what differs by less
    is no difference.
    """

    title: str
    range: tuple[float, float] | None = None
    whole: bool = False
    depth: int | None = None
    log: bool = False
    scale: float = 1.0
    least: float = 0.0


Mark = Literal["line", "points"]
Tone = Literal["own", "rival", "ink"] | int
"""The result's own colour, that of its rival, none, or a colour by its number."""


@dataclass(frozen=True)
class Series:
    """Points of a chart that belong together; `note` says how many samples they rest on.

    `errors` are drawn as a band, of `points` as bars. Points in `marked` stand out; those in
    `after` follow the line, as what comes after the final norm does.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    errors: tuple[float, ...] = ()
    mark: Mark = "line"
    tone: Tone = "own"
    marked: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    note: str = ""

    @classmethod
    def of(
        cls,
        frame: "pd.DataFrame",
        x: str,
        y: str,
        name: str = "",
        *,
        error: str = "",
        **how: Any,
    ) -> "Series":
        """Return two columns of a frame as a series, a third as its errors; rows that are `chosen` stand out."""
        across, up = (tuple(frame[column].astype(float)) for column in (x, y))
        has_errors = error and bool(frame[error].notna().any())
        errors = tuple(frame[error].astype(float)) if has_errors else ()
        if "chosen" in frame and "marked" not in how:
            how["marked"] = tuple(
                row for row, chosen in enumerate(frame["chosen"]) if chosen
            )
        return cls(name, across, up, errors=errors, **how)


@dataclass(frozen=True)
class Meaning:
    """What a plot shows, which way is better, and where it comes from; `more` are names and facts, as a formula."""

    meaning: str = ""
    direction: str = ""
    source: str = ""
    more: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plot:
    """What is drawn under a title.

    `summary` says in a sentence what is seen, `note` what its marks stand for, `unit` stands beside
    the title. Plots of one `title` and `variant` belong together, whichever results they are of: a
    `choice` tells those of one result apart (a pooling). `name` is what a file of it is called,
    `sheet` that of the figure in which it is one panel of several. `overlaid` plots of several
    results lie over each other, others stand side by side.
    """

    title: str
    variant: str = ""
    summary: str = ""
    note: str = ""
    unit: str = ""
    about: Meaning = Meaning()
    choice: str = ""
    name: str = ""
    sheet: str = ""
    overlaid: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart(Plot):
    """Series over two axes."""

    x: Axis
    y: Axis
    series: tuple[Series, ...]
    marked: str = "chosen"
    """What a point that stands out is."""

    @classmethod
    def of(
        cls,
        frame: "pd.DataFrame",
        x: tuple[str, Axis],
        y: tuple[str, Axis],
        by: str = "",
        error: str = "",
        **how: Any,
    ) -> "Chart":
        """Return two columns of a frame over the axes named beside them, a line for each value of `by`.

        `note` says how many samples the rows rest on, where the frame has their number as `n`.
        """
        groups = frame.groupby(by, sort=False) if by else [("", frame)]
        series = tuple(
            Series.of(rows, x[0], y[0], str(name), error=error, note=counted(rows))
            for name, rows in groups
        )
        return cls(x=x[1], y=y[1], series=series, **how)


@dataclass(frozen=True, kw_only=True)
class Bars(Plot):
    """Numbers by name as bars that lie, from `low` to `high` their interval, NaN where it is unknown."""

    x: Axis
    rows: tuple[str, ...]
    values: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HeatMap(Plot):
    """Numbers by row and column as colours from `low` to `high`, None for the least and the most there are.

    What lies less than `least` apart is no difference, and gets colours that are close.

    `down` and `across` name rows and columns; a map is a `square` where both are layers, `upward`
    where the first row is the lowest, as in every square, `diverging` where its numbers lie around
    0, `reversed` where less is better. Of each row one column may be ringed (`rings`); `shown` is
    what is printed in its cells.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    low: float | None = 0.0
    high: float | None = 1.0
    across: str = ""
    down: str = ""
    rings: tuple[int | None, ...] = ()
    shown: tuple[tuple[str, ...], ...] = ()
    log: bool = False
    square: bool = False
    upward: bool = False
    diverging: bool = False
    reversed: bool = False
    least: float = 0.0

    @classmethod
    def of(cls, frame: "pd.DataFrame", **how: Any) -> "HeatMap":
        """Return the numbers of a frame as a map, with the names of its rows and columns."""
        return cls(
            rows=tuple(map(str, frame.index)),
            columns=tuple(map(str, frame.columns)),
            values=tuple(map(tuple, frame.to_numpy(dtype=float).tolist())),
            **how,
        )


def counted(rows: "pd.DataFrame") -> str:
    """Return on how many samples rows rest, where that is known."""
    return f"N: {int(rows['n'].max()):,}" if "n" in rows else ""
