"""The history of a training as a document: what each layer can at the last step."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from layerscope.runs import plots
from layerscope.runs.curves import Curve, curves
from layerscope.runs.depths import clock
from layerscope.runs.details import details, unfinished
from layerscope.runs.document import cell, every_number, size
from layerscope.runs.findings import findings
from layerscope.runs.registry import about
from layerscope.runs.titles import capital
from layerscope.show.document import Cell, Column, Document, Facts, Part, Row, Section, Sentences, Table
from layerscope.show.numbers import error, number
from layerscope.show.plots import Axis, Chart, HeatMap, Series

if TYPE_CHECKING:
    from layerscope.runs.run import Run

SHOWN = ("layer_accuracy", "perplexity", "cosine_similarity", "saturated", "nc1")
LAYERS = ("layer_accuracy", "perplexity", "cosine_similarity")
"""What is drawn as a map of layers by steps."""
COURSES = {"cross_entropy": "Loss of the last layer", "effective_depth": "Effective depth"}
"""What is drawn by step: at the last layer, and of the whole."""
LEAD = (
    "At each evaluation: what the whole model has, and every layer read through the model's head. What follows by "
    "layer alone is that of the last step."
)
NAMES = {"layer_accuracy": "accuracy", "cosine_similarity": "cosine to last"}


def document(run: Run) -> Document:
    """Return the last step of a training: a row for each layer, and from which layer on it is as good as the last."""
    model, data = run.info["model"], run.info["data"]
    objective = str(run.info["options"].get("objective", ""))
    facts = (*size(run), f"step {run.steps[-1]:,}", f"{data['samples']:,} samples", *([objective] if objective else []))
    commands = (shlex.join(["layerscope", "report", str(run.path)]),)
    known = curves(run)
    parts = (Sentences("What stands out", tuple(finding.text for finding in findings(run, known))), *layers(run))
    return Document(
        effective_depth(run), (str(model["name"]), str(data["name"])), facts, parts=parts, commands=commands,
        sections=(
            Section("training", "Training", LEAD, (*_courses(run), *_maps(run))), *clock(run),
            *plots.sections(run, known), *every_number(run, known),
        ),
        details=details(run), warnings=unfinished(run), kind="runs", depth=run.depth,
    )  # fmt: skip


def _courses(run: Run) -> Iterator[Chart]:
    """Yield lines by step."""
    table = run.table()
    for name, title in COURSES.items():
        rows = table[(table["metric"] == name) & (table["layer"] == run.depth)]
        if name == "effective_depth":
            rows = rows[rows["variant"].str.startswith("relative_to=last").astype(bool)]
        rows = rows.sort_values("step")
        if not len(rows):
            continue
        texts = [
            f"step {step:,}: {' '.join(filter(None, (number(value), error(stderr))))}"
            for step, value, stderr in zip(rows["step"], rows["value"], rows["stderr"], strict=True)
        ]
        line = Series(
            "", tuple(rows["step"].astype(float)), tuple(rows["value"]), tuple(texts), errors=tuple(rows["stderr"]),
            note=f"N: {int(rows['n'].max()):,}",
        )  # fmt: skip
        whole = name == "effective_depth"
        yield Chart(
            title=f"{title} by step",
            summary=texts[-1],
            about=plots.meaning(name, run),
            unit=about(name).unit or "layers",
            name=f"training-{name}",
            sheet="training",
            x=Axis("step", whole=True),
            y=Axis("", (0.0, 1.06 * run.depth) if whole else None, whole=whole),
            series=(line,),
            overlaid=True,
        )


def _maps(run: Run) -> Iterator[HeatMap]:
    """Yield layers by steps: accuracy (of a language model perplexity), and cosine to the last layer."""
    table = run.table()
    left_out = "layer_accuracy" if run.info["model"].get("language_model") else "perplexity"
    for name in LAYERS:
        rows = table[table["metric"] == name]
        if name == left_out or not len(rows):
            continue
        values = rows.pivot_table(index="layer", columns="step", values="value") * (
            100 if about(name).unit == "%" else 1
        )
        title = {"layer_accuracy": "accuracy", "cosine_similarity": "cosine to the last layer"}.get(name, name)
        yield HeatMap(
            title=f"{capital(title)} by step",
            summary=f"A heat map of layers by steps. {about(name).meaning}",
            about=plots.meaning(name, run),
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


def layers(run: Run) -> Iterator[Part]:
    """Yield what each layer scores and how to read it; of a language model perplexity in the place of accuracy."""
    by_name = {curve.metric: curve for curve in curves(run)}
    left_out = "layer_accuracy" if "perplexity" in by_name else None
    columns = [by_name[name] for name in SHOWN if name in by_name and name != left_out]
    rows = [Row((Cell(str(n)), *(cell(curve, *curve.at(n)) for curve in columns))) for n in range(1, run.depth + 1)]
    titles = (Column("layer"), *(Column(_title(curve), "decimal") for curve in columns))
    yield Table("Each layer after the last step", titles, tuple(rows), ("± is one standard error.",))
    yield Facts(tuple((_title(curve), about(curve.metric).reading) for curve in columns), "How to read the metrics")


def effective_depth(run: Run) -> str:
    """Return from which layer on the model is as good as at its last, and where its predictions settle."""
    rows = run.at()
    depths = rows[rows["metric"] == "effective_depth"].set_index("variant")["value"]
    found = [f"effective depth {int(value)} of {run.depth}" for name, value in depths.items() if "=last" in str(name)]
    mean = rows.set_index("metric")["value"].get("saturation_layer")
    settled = [] if mean is None else [f"predictions settle at layer {number(float(mean))} on average"]
    text = "; ".join(found + settled)
    return text[:1].upper() + text[1:]


def _title(curve: Curve) -> str:
    return NAMES.get(curve.metric, curve.title)
