"""A run as a document: the answer, the few sentences it rests on, and for each kind of metric a table and charts.

A terminal shows the answer, the sentences and the tables; a page its sections, which begin with the
course of a training, where the run is one, and end with every number in one long table.
"""

import shlex
from collections.abc import Iterator
from typing import Any

import numpy as np

from layerscope.core import count, jsonable, spans
from layerscope.runs.curves import KEYS, curves
from layerscope.runs.details import details, unfinished
from layerscope.runs.findings import answer, findings
from layerscope.runs.history import training_sections
from layerscope.runs.plots import SUBLAYERS, sections
from layerscope.runs.probed import Finding, drawn_from
from layerscope.runs.run import Run
from layerscope.show.document import Document, Facts, Frame, Section, Sentences, Table

ERROR = "± is one standard error."
EVERY = "One row for each metric, layer, site and pooling, and for every two layers."


def as_dict(run: Run) -> dict[str, Any]:
    """Return answer, model, data, depth, pooling, path, rows, what stands out, for JSON.

    No number is null.
    """
    measured = curves(run)
    sentences = findings(run, measured)
    stands_out = []
    findings_made = []
    for curve in measured:
        entry = {name: getattr(curve, name) for name in KEYS}
        stands_out.append(entry | {"layer": curve.stands_out})
    for finding in sentences:
        entry = {"name": finding.name, "text": finding.text}
        findings_made.append(entry | finding.numbers)
    facts = {
        "answer": answer(run, measured, sentences),
        "model": run.info["model"],
        "data": run.info["data"],
        "depth": run.depth,
        "pooling": run.info["pooling"],
        "path": str(run.path),
        "rows": run.table().astype(object),
        "stands_out": stands_out,
        "findings": findings_made,
    }
    return dict(jsonable(facts))


def document(run: Run) -> Document:
    """Return a run as it is shown: rows are layers 0 … L, and `final` where a norm follows layer L."""
    measured = curves(run)
    sentences = findings(run, measured)
    by_kind = [*sections(run, measured)]
    tables = []
    lead = []
    for kind in by_kind:
        for part in kind.parts:
            if isinstance(part, Table):
                tables.append(part)
                if kind is by_kind[0] or kind.name == SUBLAYERS:
                    lead.append(part)
    readings = {curve.title: curve.about.reading for curve in measured}
    every = Frame("Every number", EVERY, "numbers", run.table(), ("run", "metric"))
    notes = []
    if any(np.isfinite(curve.stderr).any() for curve in measured):
        notes.append(ERROR)
    return Document(
        answer(run, measured, sentences),
        title=(run.info["model"]["name"], run.info["data"]["name"]),
        facts=tuple(_facts(run)),
        parts=(
            Sentences("What stands out", tuple(finding.text for finding in sentences)),
            *tables,
            Facts(tuple(readings.items()), "How to read the metrics"),
        ),
        lead=tuple(lead),
        notes=tuple(notes),
        commands=_commands(run, sentences),
        sections=(
            *training_sections(run),
            *by_kind,
            Section("numbers", every.title, "", (every,)),
        ),
        details=details(run),
        warnings=tuple(unfinished(run)),
        kind="runs",
        depth=run.depth,
    )


def _facts(run: Run) -> Iterator[str]:
    """Yield the layers of a run, the size of its model, its samples and its poolings.

    Of the samples it says of how many they were drawn, or how many of a stream were kept.
    """
    model = run.info["model"]
    first = run.layers[0]
    layers = spans(run.layers, "layer")
    if 1 < len(run.layers) == run.depth + 1 - first:
        layers = f"layers {first} to {run.depth}"
    yield layers
    yield f"{model['width']:,} wide"
    if model["parameters"] is not None:
        yield f"{model['parameters']:,} parameters"
    kept = run.info["data"]["samples"]
    total = drawn_from(run)
    if run.info.get("stream"):
        yield f"{count(total or 0, 'sample')}, of which {kept:,} were kept"
    elif total:
        yield f"{kept:,} of {count(total, 'sample')}"
    else:
        yield count(kept, "sample")
    if run.steps:
        yield f"step {run.steps[-1]:,}"
    objective = run.info["options"].get("objective")
    if objective:
        yield objective
    if run.info["pooling"]:
        yield f"{', '.join(run.info['pooling'])} pooling"


def _commands(run: Run, sentences: list[Finding]) -> tuple[str, ...]:
    """Return what to type next: `select` where a layer is named."""
    verbs = ["report"]
    probes = [finding for finding in sentences if finding.name == "best_layer"]
    if not run.is_history and any(finding.numbers["layer"] for finding in probes):
        verbs.insert(0, "select")
    return tuple(shlex.join(["layerscope", verb, str(run.path)]) for verb in verbs)
