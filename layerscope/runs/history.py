"""What a page has of a training beside its last step: scores by step, and what depth costs and gives."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd

from layerscope.core.errors import LayerscopeError
from layerscope.runs.registry import about, capital, meaning_of, scale
from layerscope.show.document import Column, Section, Table
from layerscope.show.numbers import number
from layerscope.show.plots import Axis, Chart, HeatMap

if TYPE_CHECKING:
    from layerscope.runs.run import Run

DIMS = "dims="
"""What the variant of a score begins with that reads the first dimensions of an embedding alone."""
SCORES = ("perplexity", "pair_spearman", "pair_accuracy", "layer_accuracy")
"""What is drawn as a map of layers by steps: the first that a training measured."""
COURSES = {
    "cross_entropy": "Loss of the last layer",
    "effective_depth": "Effective depth",
}
"""What is drawn by step: at the last layer, and of the whole."""
LEAD = "What the whole model has at each evaluation; what follows by layer is that of the last step."
CLOCK = "Every model at each of its depths, and the time a sample takes to get there."
DEPTHS = "depths.csv"
"""The scores of trained models at each depth beside the time they take, as `train` wrote them."""
NUMBERS = ("depth", "layer", "value", "stderr", "ms_per_sample", "megabytes")
COLUMNS = ("name", "objective", "metric", *NUMBERS)
NAMES = {"layer_accuracy": "accuracy", "cosine_similarity": "cosine to last"}


def training_sections(run: "Run") -> Iterator[Section]:
    """Yield the course of a training, and what depth buys where `train` measured it; nothing of other runs."""
    if run.steps:
        yield Section(
            "training", "Training", LEAD, (*_courses(run), *_scores_by_step(run))
        )
    table = depths(run)
    if table is not None and len(table):
        charts = tuple(_by_time(table, run))
        yield Section(
            "clock", "Depth and the clock", CLOCK, (*charts, _every_depth(table))
        )


def _courses(run: "Run") -> Iterator[Chart]:
    """Yield lines by step."""
    table = run.table()
    table = table[table["layer"] == run.depth].sort_values("step")
    is_aside = table["variant"].fillna("").str.contains("first|train")
    for name, title in COURSES.items():
        rows = table[(table["metric"] == name) & ~is_aside]
        if len(rows):
            yield Chart.of(
                rows,
                ("step", Axis("step", whole=True)),
                ("value", Axis("")),
                error="stderr",
                title=f"{title} by step",
                summary=f"{number(rows['value'].iloc[-1])} at the last step",
                about=meaning_of(name, table),
                unit=about(name).unit or "layers",
                name=f"training-{name}",
                sheet="training",
                overlaid=True,
            )


def _scores_by_step(run: "Run") -> Iterator[HeatMap]:
    """Yield the score of each layer at each step."""
    table = run.table()
    table = table[table["variant"].isna()]
    measured = [name for name in SCORES if (table["metric"] == name).any()]
    for name in measured[:1]:
        rows = table[table["metric"] == name]
        values = rows.pivot_table(
            index="layer", columns="step", values="value"
        ) * scale(name)
        yield HeatMap(
            title=f"{capital(NAMES.get(name, about(name).title))} by step",
            summary=f"A heat map of layers by steps. {about(name).meaning}",
            about=meaning_of(name, table),
            unit=about(name).unit,
            name=f"training-{name}-by-layer",
            rows=tuple(str(layer) for layer in values.index),
            columns=tuple(str(step) for step in values.columns),
            values=tuple(tuple(map(float, line)) for line in values.to_numpy()),
            low=None,
            high=None,
            across="step",
            down="layer",
            log=about(name).log,
            reversed=about(name).log,
            upward=True,
        )


def depths(run: "Run") -> pd.DataFrame | None:
    """Return a row for each model (`name`) and layer of it that was measured, None where a run has no such file.

    Raises `LayerscopeError` for a file that is not what it should be.
    """
    path = run.path / DEPTHS
    if not path.is_file():
        return None
    types = {"name": str, "objective": str, "metric": str}
    try:
        table = pd.read_csv(path, dtype=types, float_precision="round_trip")
        if lacking := [name for name in COLUMNS if name not in table]:
            raise ValueError(f"it has no column {lacking[0]!r}")
        table = table.astype(dict.fromkeys(NUMBERS, "float64"))
        return table.dropna(subset=["name", "layer", "metric", "value"])
    except (OSError, ValueError) as error:
        raise LayerscopeError(
            f"{str(path)!r} cannot be read ({error}): delete it, or train again"
        ) from error


def _record_name(metric: str) -> str:
    return "layer_accuracy" if metric == "accuracy" else metric


def _by_time(table: pd.DataFrame, run: "Run") -> Iterator[Chart]:
    """Yield each score by time, a line for each model."""
    timed = table.dropna(subset=["ms_per_sample"]).sort_values("ms_per_sample")
    for metric, rows in timed.groupby("metric", sort=False):
        name = _record_name(str(metric))
        record, title = about(name), capital(about(name).title.removeprefix("layer "))
        yield Chart.of(
            rows,
            ("ms_per_sample", Axis("ms per sample")),
            ("value", Axis("", log=record.log, scale=scale(name))),
            by="name",
            error="stderr",
            title=f"{title} by time",
            summary=f"{title} of each model at each of its depths",
            about=meaning_of(name, run.at()),
            unit=record.unit,
            name=f"depth-{metric}",
        )


def _every_depth(table: pd.DataFrame) -> Table:
    """Return a row for each model and layer it ends at."""
    factors = table["metric"].map(lambda metric: scale(_record_name(metric)))
    shown = table.assign(score=table["value"] * factors)
    columns = (
        Column("model", "left", field="name"),
        Column("layer", field="layer", form=number),
        Column("of", unit="layers", field="depth", form=number),
        Column("metric", "left", field="metric"),
        Column("score", field="score", form=number),
        Column("time", unit="ms per sample", field="ms_per_sample", form=number),
        Column("size", unit="MB", field="megabytes", form=number),
    )
    return Table.of(shown, columns, "Every model and depth", name="depths")
