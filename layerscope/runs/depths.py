"""What depth buys: the scores of trained models at each depth beside the time they take, as `train` wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd

from layerscope.core.errors import LayerscopeError
from layerscope.runs import plots
from layerscope.runs.registry import about
from layerscope.runs.titles import capital
from layerscope.show.document import Cell, Column, Row, Section, Table
from layerscope.show.numbers import error, number
from layerscope.show.plots import Axis, Chart, Series

if TYPE_CHECKING:
    from layerscope.runs.run import Run

NAME = "depths.csv"
NUMBERS = ("depth", "layer", "value", "stderr", "ms_per_sample", "megabytes")
COLUMNS = ("name", "objective", "metric", *NUMBERS)


def depths(run: Run) -> pd.DataFrame | None:
    """Return a row for each model (`name`) and layer of it that was measured, None where a run has no such file.

    Raises `LayerscopeError` for a file that is not what it should be.
    """
    path = run.path / NAME
    if not path.is_file():
        return None
    try:
        found = pd.read_csv(path, dtype={"name": str, "objective": str, "metric": str}, float_precision="round_trip")
    except (OSError, ValueError) as error:
        raise LayerscopeError(f"{str(path)!r} cannot be read ({error}): delete it, or train again") from error
    lacking = [name for name in COLUMNS if name not in found]
    if lacking:
        raise LayerscopeError(f"{str(path)!r} has no column {lacking[0]!r}: delete it, or train again")
    try:
        return found.astype(dict.fromkeys(NUMBERS, "float64")).dropna(subset=["name", "layer", "metric", "value"])
    except ValueError as error:
        raise LayerscopeError(f"{str(path)!r} holds no number ({error}): delete it, or train again") from error


def clock(run: Run) -> Iterator[Section]:
    """Yield what depth buys, where a run has what `train` measured of it."""
    table = depths(run)
    if table is None or not len(table):
        return
    charts = [chart for _, rows in table.groupby("metric", sort=False) for chart in _charts(rows, run)]
    lead = "Every model at each of its depths, and the time a sample takes to get there: up and to the left is better."
    lead += " (Perplexity: down.)" if "perplexity" in set(table["metric"]) else ""
    yield Section("clock", "Depth and the clock", lead, (*charts, _table(table)))


def _charts(table: pd.DataFrame, run: Run) -> Iterator[Chart]:
    """Yield one metric by layer and by time, a line for each model."""
    known = about(_name(table["metric"].iloc[0]))
    title = known.title.removeprefix("layer ")
    for column, words, across in (
        ("layer", "by layer", Axis("layer", whole=True, depth=int(table["depth"].max()))),
        ("ms_per_sample", "by time", Axis("ms a sample", (0.0, 1.05 * float(table["ms_per_sample"].max())))),
    ):
        rows = table[table[column].notna()]
        lines = [
            _line(i, str(name), part.sort_values(column), column)
            for i, (name, part) in enumerate(rows.groupby("name", sort=False))
        ]
        if lines:
            yield Chart(
                title=f"{capital(title)} {words}",
                summary="; ".join(f"{line.name}: {line.texts[-1]}" for line in lines),
                about=plots.meaning(known.name, run.at()),
                unit=known.unit,
                name=f"depth-{title.replace(' ', '-')}-{words.replace(' ', '-')}",
                sheet="depth",
                x=across,
                y=Axis("", log=known.log, scale=_scale(known.name)),
                series=tuple(lines),
            )


def _line(number_of: int, name: str, rows: pd.DataFrame, column: str) -> Series:
    scale = _scale(_name(rows["metric"].iloc[0]))
    points = rows.to_dict(orient="records")
    texts = (
        f"layer {row['layer']:.0f} of {row['depth']:.0f}"
        + (f", {number(row['ms_per_sample'])} ms" if column != "layer" else "")
        + f": {_point(row['value'], row['stderr'], scale)}"
        for row in points
    )
    return Series(
        name, tuple(rows[column]), tuple(rows["value"]), tuple(texts), errors=tuple(rows["stderr"]), tone=number_of,
        mark="line" if len(points) > 1 else "points", depth=int(points[0]["depth"]),
    )  # fmt: skip


def _table(table: pd.DataFrame) -> Table:
    rows = []
    for row in table.to_dict(orient="records"):
        scale = _scale(_name(row["metric"]))
        name = str(row["name"]) if table["metric"].nunique() == 1 else f"{row['name']}, {row['metric']}"
        cells = [Cell(f"{row[key]:.0f}", value=row[key]) for key in ("layer", "depth")]
        cells.append(Cell(_point(row["value"], row["stderr"], scale), value=row["value"] * scale))
        cells += [Cell(number(row[key]), value=row[key]) for key in ("ms_per_sample", "megabytes")]
        rows.append(Row((Cell(name), *cells)))
    columns = [Column("model"), Column("layer"), Column("of", unit="layers"), Column("value")]
    columns += [Column("time", unit="ms a sample"), Column("size", unit="MB")]
    legend = "A row for each model and layer it ends at."
    return Table("Every model and depth", tuple(columns), tuple(rows), (legend,), name="depths")


def _point(value: float, stderr: float, scale: float) -> str:
    if scale == 1.0:
        return " ".join(filter(None, (number(value), error(stderr))))
    return f"{scale * value:.1f}" + (f" ±{scale * stderr:.1f}" if stderr == stderr else "") + " %"


def _name(metric: object) -> str:
    return "layer_accuracy" if metric == "accuracy" else str(metric)


def _scale(metric: str) -> float:
    return 100.0 if about(metric).unit == "%" else 1.0
