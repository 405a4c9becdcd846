"""A report of exits as a document: the verdict, the guarantee, and tables by threshold, by layer and by truncation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from layerscope.early_exit.findings import findings, threshold
from layerscope.show.document import EMPTY, Cell, Column, Document, Row, Sentences, Table, columns, row
from layerscope.show.numbers import number, percent, times

if TYPE_CHECKING:
    from layerscope.early_exit.exit_report import ExitReport

CHOSEN = "●"


def document(report: ExitReport) -> Document:
    """Return what exits gain, what is guaranteed, and the tables that both rest on."""
    return Document(
        answer=report.verdict,
        reasons=(report.goal,),
        title=(report.model, report.data),
        facts=(
            f"{report.depth} layers", f"{report.classes:,} classes",
            f"{report.samples:,} samples (exits chosen on {report.design:,})", f"batch size {report.batch_size}",
        ),
        parts=(Sentences("", tuple(findings(report))), *_tables(report)),
        notes=report.notes,
    )  # fmt: skip


def _tables(report: ExitReport) -> Iterator[Table]:
    yield _curve(report)
    yield _layers(report)
    yield _depths(report)


def _scored(report: ExitReport, share: float) -> list[Cell]:
    """Return the accuracy as a cell, where it is known at all."""
    return [_percent(share)] if report.labelled else []


def _percent(share: float, digits: int = 1) -> Cell:
    return Cell(percent(share, digits), value=100 * share)


def _times(factor: float) -> Cell:
    return Cell(times(factor), value=factor)


def _curve(report: ExitReport) -> Table:
    rows = []
    for found in report.curve.to_dict(orient="records"):
        name = threshold(found["threshold"])
        cells = [Cell(f"{CHOSEN} {name}" if found["chosen"] else name, value=found["threshold"])]
        cells.append(Cell(number(found["mean_layer"]), value=found["mean_layer"]))
        cells += [_times(found[name]) for name in ("exit_speedup", "predicted", "measured")]
        cells += _scored(report, found["accuracy"])
        rows.append(Row((*cells, _percent(found["disagreement"], 2)), marked=bool(found["chosen"])))
    titles = ("threshold", "mean layer", "by depth", "predicted", "measured", *_accuracy(report), "differ")
    return Table(f"By threshold ({CHOSEN} chosen)", columns(titles), tuple(rows))


def _layers(report: ExitReport) -> Table:
    rows = []
    for found in report.layers.to_dict(orient="records"):
        last = found["layer"] == report.depth
        exits = "end" if last else "yes" if found["checked"] else "–"
        counted = found["checked"] or last
        cells = [Cell(str(found["layer"]), value=found["layer"]), Cell(exits)]
        cells.append(Cell(f"{found['leaving']:,}", value=found["leaving"]) if counted else EMPTY)
        cells.append(_percent(found["share"]) if counted else EMPTY)
        cells += [Cell("", share=found["share"]), _percent(found["cumulative"])]
        cells += _scored(report, found["layer_accuracy"])
        rows.append(row(*cells, _percent(found["layer_agreement"])))
    titles = [*columns(("layer", "exit", "leave", "share")), Column("", "left")]
    titles += columns(("so far", *_accuracy(report), "agree"))
    return Table("Where samples leave, and what all of them would score there", tuple(titles), tuple(rows))


def _depths(report: ExitReport) -> Table:
    rows = []
    for found in report.depths.to_dict(orient="records"):
        cells = [Cell(f"{found['layer']} of {report.depth}", value=found["layer"])]
        cells += [*_scored(report, found["accuracy"]), _percent(found["disagreement"]), _times(found["measured"])]
        rows.append(row(*cells, Cell(f"{found['parameters']:,}", value=found["parameters"])))
    titles = ("layers", *_accuracy(report), "differ", "measured", "parameters")
    legend = (
        "By depth: the layers that are left out, as a speed-up. Predicted and measured: times the plain model's speed "
        f"on {report.machine}. Differ, agree: predictions against the plain model's."
    )
    return Table("The model truncated instead", columns(titles), tuple(rows), (legend,))


def _accuracy(report: ExitReport) -> tuple[str, ...]:
    return ("accuracy",) if report.labelled else ()
