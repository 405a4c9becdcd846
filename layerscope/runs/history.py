"""The history of a training as a document: what each layer can at the last step."""

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from layerscope.core.errors import LayerscopeError
from layerscope.runs import plots
from layerscope.runs.curves import curves, value_text
from layerscope.runs.details import details, unfinished
from layerscope.runs.document import cell, every_number, size
from layerscope.runs.findings import findings
from layerscope.runs.registry import Metric, about, capital, meaning_of, scale
from layerscope.show.document import (
    Cell,
    Column,
    Document,
    Facts,
    Row,
    Section,
    Sentences,
    Table,
    row,
)
from layerscope.show.numbers import number
from layerscope.show.plots import Axis, Chart, HeatMap, Series

if TYPE_CHECKING:
    from layerscope.runs.run import Run

DIMS = "dims="
"""What the variant of a score begins with that reads the first dimensions of an embedding alone."""
SHOWN = (
    "pair_spearman",
    "pair_accuracy",
    "layer_accuracy",
    "f1",
    "perplexity",
    "agreement",
    "cosine_similarity",
    "saturated",
    "nc1",
)
LAYERS = ("pair_spearman", "pair_accuracy", "layer_accuracy", "perplexity", "cosine_similarity")
"""What is drawn as a map of layers by steps."""
COURSES = {"cross_entropy": "Loss of the last layer", "effective_depth": "Effective depth"}
"""What is drawn by step: at the last layer, and of the whole."""
LEAD = (
    "At each evaluation: what the whole model has, and every layer read as the model's last one is. What follows by "
    "layer alone is that of the last step."
)
DEPTHS = "depths.csv"
"""The scores of trained models at each depth beside the time they take, as `train` wrote them."""
NUMBERS = ("depth", "layer", "value", "stderr", "ms_per_sample", "megabytes")
COLUMNS = ("name", "objective", "metric", *NUMBERS)
NAMES = {"layer_accuracy": "accuracy", "cosine_similarity": "cosine to last"}


def document(run: "Run") -> Document:
    """Return the last step of a training: a row for each layer, and from which layer on it is as good as the last."""
    model, data = run.info["model"], run.info["data"]
    objective = str(run.info["options"].get("objective", ""))
    facts = (
        *size(run),
        f"step {run.steps[-1]:,}",
        f"{data['samples']:,} samples",
        *([objective] if objective else []),
    )
    commands = (shlex.join(["layerscope", "report", str(run.path)]),)
    every = curves(run)
    known, narrow = (
        [c for c in every if (c.variant or "").startswith(DIMS) is some] for some in (False, True)
    )
    by_name = {curve.metric: curve for curve in known}
    # of a language model perplexity and what a layer's drafts are worth in place of accuracy
    left_out = "layer_accuracy" if "perplexity" in by_name else "agreement"
    columns = [by_name[name] for name in SHOWN if name in by_name and name != left_out]
    titles = {
        NAMES.get(curve.metric, curve.title): about(curve.metric).reading for curve in columns
    }
    titles |= {
        f"{(curve.variant or '')[len(DIMS) :]} dims": "the same, of the first dimensions"
        for curve in narrow
    }
    columns += narrow
    rows = [
        Row((Cell(str(n)), *(cell(curve, *curve.at(n)) for curve in columns)))
        for n in range(1, run.depth + 1)
    ]
    heads = (Column("layer"), *(Column(title, "decimal") for title in titles))
    parts = (
        Sentences("What stands out", tuple(finding.text for finding in findings(run, known))),
        Table("Each layer after the last step", heads, tuple(rows), ("± is one standard error.",)),
        Facts(tuple(titles.items()), "How to read the metrics"),
    )
    return Document(
        effective_depth(run),
        (str(model["name"]), str(data["name"])),
        facts,
        parts=parts,
        commands=commands,
        sections=(
            Section("training", "Training", LEAD, (*_courses(run), *_maps(run))),
            *clock(run),
            *plots.sections(run, known),
            *every_number(run, every),
        ),
        details=details(run),
        warnings=unfinished(run),
        kind="runs",
        depth=run.depth,
    )


def _courses(run: "Run") -> Iterator[Chart]:
    """Yield lines by step."""
    table = run.table()
    for name, title in COURSES.items():
        rows = table[(table["metric"] == name) & (table["layer"] == run.depth)]
        if name == "effective_depth":
            rows = rows[rows["variant"].str.startswith("relative_to=last").astype(bool)]
        rows = rows.sort_values("step")
        if not len(rows):
            continue
        last, whole = rows.iloc[-1], name == "effective_depth"
        yield Chart.of(
            rows,
            ("step", Axis("step", whole=True)),
            ("value", Axis("", (0.0, 1.06 * run.depth) if whole else None, whole=whole)),
            error="stderr",
            title=f"{title} by step",
            summary=f"step {last['step']:,}: {value_text(about(name), last['value'], last['stderr'])}",
            about=meaning_of(name, table),
            unit=about(name).unit or "layers",
            name=f"training-{name}",
            sheet="training",
            overlaid=True,
        )


def _maps(run: "Run") -> Iterator[HeatMap]:
    """Yield layers by steps: accuracy (of a language model perplexity), and cosine to the last layer."""
    table = run.table()
    left_out = "layer_accuracy" if run.info["model"].get("language_model") else "perplexity"
    for name in LAYERS:
        rows = table[(table["metric"] == name) & table["variant"].isna()]
        if name == left_out or not len(rows):
            continue
        values = rows.pivot_table(index="layer", columns="step", values="value") * scale(name)
        title = NAMES.get(name, about(name).title).replace("to last", "to the last layer")
        yield HeatMap(
            title=f"{capital(title)} by step",
            summary=f"A heat map of layers by steps. {about(name).meaning}",
            about=meaning_of(name, table),
            unit=about(name).unit,
            name=f"training-{name}-by-layer",
            rows=tuple(str(int(layer)) for layer in values.index),
            columns=tuple(str(int(step)) for step in values.columns),
            values=tuple(tuple(map(float, line)) for line in values.to_numpy()),
            low=None,
            high=None,
            across="step",
            down="layer",
            log=about(name).log,
            reversed=about(name).log,
            upward=True,
            depth=run.depth,
        )


def effective_depth(run: "Run") -> str:
    """Return from which layer on the model is as good as at its last, and where its predictions settle."""
    rows = run.at()
    depths = rows[rows["metric"] == "effective_depth"].set_index("variant")["value"]
    found = [
        f"effective depth {int(value)} of {run.depth}{' on training data' * str(name).endswith('on=train')}"
        for name, value in depths.items()
        if "=last" in str(name)
    ]
    mean = rows.set_index("metric")["value"].get("saturation_layer")
    settled = (
        [] if mean is None else [f"predictions settle at layer {number(float(mean))} on average"]
    )
    text = "; ".join(found + settled)
    return text[:1].upper() + text[1:]


def depths(run: "Run") -> pd.DataFrame | None:
    """Return a row for each model (`name`) and layer of it that was measured, None where a run has no such file.

    Raises `LayerscopeError` for a file that is not what it should be.
    """
    path = run.path / DEPTHS
    if not path.is_file():
        return None
    try:
        found = pd.read_csv(
            path, dtype={"name": str, "objective": str, "metric": str}, float_precision="round_trip"
        )
        if lacking := [name for name in COLUMNS if name not in found]:
            raise ValueError(f"it has no column {lacking[0]!r}")
        return found.astype(dict.fromkeys(NUMBERS, "float64")).dropna(
            subset=["name", "layer", "metric", "value"]
        )
    except (OSError, ValueError) as error:
        raise LayerscopeError(
            f"{str(path)!r} cannot be read ({error}): delete it, or train again"
        ) from error


def clock(run: "Run") -> Iterator[Section]:
    """Yield what depth buys, where a run has what `train` measured of it."""
    table = depths(run)
    if table is None or not len(table):
        return
    metrics = {
        name: about("layer_accuracy" if name == "accuracy" else name)
        for name in table["metric"].unique()
    }
    parts = table.groupby("metric", sort=False)
    charts = [chart for name, rows in parts for chart in _charts(rows, metrics[name], run)]
    lead = "Every model at each of its depths, and the time a sample takes to get there: up and to the left is better."
    lead += " (Perplexity: down.)" if "perplexity" in metrics else ""
    rows = [
        row(
            f"{point.name}, {point.metric}" if len(metrics) > 1 else point.name,
            *(Cell(f"{value:.0f}", value=value) for value in (point.layer, point.depth)),
            Cell(
                _value(metrics[point.metric], point),
                value=point.value * scale(metrics[point.metric].name),
            ),
            *(Cell(number(value), value=value) for value in (point.ms_per_sample, point.megabytes)),
        )
        for point in table.itertuples(index=False)
    ]
    columns = [Column("model"), Column("layer"), Column("of", unit="layers"), Column("value")]
    columns += [Column("time", unit="ms per sample"), Column("size", unit="MB")]
    legend = "A row for each model and layer it ends at."
    whole = Table("Every model and depth", tuple(columns), tuple(rows), (legend,), name="depths")
    yield Section("clock", "Depth and the clock", lead, (*charts, whole))


def _charts(table: pd.DataFrame, metric: Metric, run: "Run") -> Iterator[Chart]:
    """Yield one metric by layer and by time, a line for each model."""
    title = metric.title.removeprefix("layer ")
    for column, words, across in (
        ("layer", "by layer", Axis("layer", whole=True, depth=int(table["depth"].max()))),
        (
            "ms_per_sample",
            "by time",
            Axis("ms per sample", (0.0, 1.05 * float(table["ms_per_sample"].max()))),
        ),
    ):
        lines = []
        for i, (name, part) in enumerate(table.dropna(subset=[column]).groupby("name", sort=False)):
            rows = part.sort_values(column)
            points = [*rows.itertuples(index=False)]
            times = [
                f", {number(point.ms_per_sample)} ms" if column != "layer" else ""
                for point in points
            ]
            texts = (
                f"layer {point.layer:.0f} of {point.depth:.0f}{time}: {_value(metric, point)}"
                for point, time in zip(points, times, strict=True)
            )
            line = Series(
                str(name),
                tuple(rows[column]),
                tuple(rows["value"]),
                tuple(texts),
                errors=tuple(rows["stderr"]),
                tone=i,
                mark="line" if len(points) > 1 else "points",
                depth=int(points[0].depth),
            )
            lines.append(line)
        if lines:
            yield Chart(
                title=f"{capital(title)} {words}",
                summary="; ".join(f"{line.name}: {line.texts[-1]}" for line in lines),
                about=meaning_of(metric.name, run.at()),
                unit=metric.unit,
                name=f"depth-{title.replace(' ', '-')}-{words.replace(' ', '-')}",
                sheet="depth",
                x=across,
                y=Axis("", log=metric.log, scale=scale(metric.name)),
                series=tuple(lines),
            )


def _value(metric: Metric, point: Any) -> str:
    return value_text(metric, point.value, point.stderr)
