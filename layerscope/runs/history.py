"""The history of a training as a document: what each layer can at the last step."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from layerscope.runs.curves import Curve, curves
from layerscope.runs.document import cell
from layerscope.runs.registry import about
from layerscope.show.document import Cell, Column, Document, Facts, Part, Row, Table
from layerscope.show.numbers import number

if TYPE_CHECKING:
    from layerscope.runs.run import Run

SHOWN = ("layer_accuracy", "perplexity", "cosine_similarity", "saturated", "nc1")
NAMES = {"layer_accuracy": "accuracy", "cosine_similarity": "cosine to last"}


def document(run: Run) -> Document:
    """Return the last step of a training: a row for each layer, and from which layer on it is as good as the last."""
    model, data = run.info["model"], run.info["data"]
    objective = str(run.info["options"].get("objective", ""))
    facts = (f"step {run.steps[-1]:,}", f"{data['samples']:,} samples", *([objective] if objective else []))
    commands = (shlex.join(["layerscope", "report", str(run.path)]),)
    parts = tuple(layers(run))
    return Document(
        effective_depth(run), (str(model["name"]), str(data["name"])), facts, parts=parts, commands=commands
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
