"""A report of exits as a document: the verdict, the guarantee, and what both rest on in charts and tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from layerscope.early_exit.findings import (
    exits_by_speed,
    findings,
    plain_value,
    threshold,
    truncations,
    value,
    window,
)
from layerscope.show.document import (
    EMPTY,
    Cell,
    Column,
    Document,
    Facts,
    Row,
    Section,
    Sentences,
    Table,
)
from layerscope.show.numbers import number, percent, times
from layerscope.show.plots import Axis, Chart, Meaning, Series

if TYPE_CHECKING:
    from layerscope.early_exit.exit_report import ExitReport

CHOSEN = "●"
LEAD = (
    "Samples that are sure leave before the last layer. Times are measured with whole batches, checks and compaction "
    "included."
)
SPEED = Meaning(
    "How many samples a second go through, as a multiple of the plain model's, and how many of their predictions are "
    "right (without labels: are the plain model's). One point for each threshold, and one for the model truncated at "
    "each layer.",
    "Up and to the right is better. A truncated model above the line of exits is the better choice.",
    "measured here",
)
LEAVING = Meaning(
    "Of all samples the share that leaves at each layer with the chosen threshold; the rest goes through all layers.",
    "Samples that leave early save time; what the checks cost is part of the measured speed, not of this figure.",
    "Jiang, Zhou, Zhu 2025, Tracing Representation Progression, figure 7",
)
FORECAST = Meaning(
    "Speed-ups predicted from the times of a block, a check and a compaction on this machine, and those measured.",
    "On the diagonal the prediction was right; the dotted lines are 10 % to each side.",
    "measured here",
)


def document(report: ExitReport) -> Document:
    """Return what exits gain, what is guaranteed, and the charts and tables that both rest on."""
    tables = (_curve(report), _layers(report), _depths(report))
    return Document(
        answer=report.verdict,
        reasons=(report.goal,),
        title=(report.model, report.data),
        facts=(
            f"{report.depth} layers", f"{report.classes:,} classes",
            f"{report.samples:,} samples (exits chosen on {report.design:,})", f"batch size {report.batch_size}",
        ),
        parts=(Sentences("", tuple(findings(report))), *tables),
        notes=report.notes,
        sections=(Section("exits", "Early exit", LEAD, (*_charts(report), *tables)),),
        details=(
            Sentences("Noted on the way:", report.notes), _settings(report),
            Facts(tuple(_flat(report.calibration or {})), "Calibration"),
        ),
        kind="early exits",
    )  # fmt: skip


def _settings(report: ExitReport) -> Facts:
    known = {
        "model": report.model, "data": report.data,
        "samples": f"{report.samples:,}, the exits chosen on {report.design:,}",
        "exits": ", ".join(map(str, report.exits)) or "none", "criterion": report.criterion,
        "threshold": threshold(report.threshold), "batch size": str(report.batch_size), "machine": report.machine,
        "guarantee": report.goal, "exit model": report.path or "",
    }  # fmt: skip
    return Facts(tuple((name, fact) for name, fact in known.items() if fact))


def _flat(known: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for key, entry in known.items():
        name = above + str(key).replace("_", " ")
        if isinstance(entry, dict):
            yield from _flat(entry, f"{name}, ")
        elif isinstance(entry, (list, tuple)):
            yield name, ", ".join(map(str, entry)) or "–"
        elif isinstance(entry, float):
            yield name, number(entry)
        else:
            yield name, "–" if entry is None else str(entry)


def _charts(report: ExitReport) -> Iterator[Chart]:
    yield _speed(report)
    if len(report.layers):
        yield _leaving(report)
    if len(report.curve.dropna(subset=["predicted", "measured"])):
        yield _forecast(report)


def _speed(report: ExitReport) -> Chart:
    labelled = report.labelled
    cut = truncations(report, labelled).to_dict(orient="records")
    curve = exits_by_speed(report, labelled).to_dict(orient="records")
    own = plain_value(report, labelled)
    reached = window(report, labelled)
    what = "Accuracy" if labelled else "Agreement"
    series = (
        Series(
            "truncated at a layer",
            tuple(row["measured"] for row in cut),
            tuple(100 * row["quality"] for row in cut),
            tuple(f"truncated at layer {row['layer']}: {_point(row)}" for row in cut),
            labels=tuple(str(row["layer"]) for row in cut),
            tone="rival",
        ),
        Series(
            "exits, a point for each threshold",
            tuple(row["measured"] for row in curve),
            tuple(100 * row["quality"] for row in curve),
            tuple(
                f"threshold {threshold(row['threshold'])}, mean layer {number(row['mean_layer'])}: {_point(row)}"
                for row in curve
            ),
            marked=tuple(i for i, row in enumerate(curve) if row["chosen"]),
        ),
        Series("plain model", (1.0,), (100 * own,), (f"plain model: {percent(own)}, 1×",), mark="points", tone="ink"),
    )
    return Chart(
        title=f"{what} against speed",
        name=f"exits_{what.lower()}_against_speed",
        x=Axis("measured speed-up (×)", reached and reached[0]),
        y=Axis(f"{what.lower()} (%)", reached and (100 * reached[1][0], 100 * reached[1][1])),
        series=series,
        summary=f"{percent(value(report, labelled))} at {times(report.measured)}",
        about=SPEED,
        note="Truncated models far below the exits are in the table alone.",
        height=2.3,
    )


def _point(row: dict[str, float]) -> str:
    return f"{percent(row['quality'])}, {times(row['measured'])}"


def _leaving(report: ExitReport) -> Chart:
    rows = report.layers.to_dict(orient="records")
    layers = tuple(float(row["layer"]) for row in rows)
    kinds = [
        "exit" if row["checked"] else "through all layers" if row["layer"] == report.depth else "no exit"
        for row in rows
    ]
    bars = Series(
        "leave at an exit (pale: go through all layers)",
        layers,
        tuple(100 * row["share"] for row in rows),
        tuple(
            f"layer {row['layer']}, {kind}: {row['leaving']:,} samples, {percent(row['share'])}"
            for row, kind in zip(rows, kinds, strict=True)
        ),
        mark="bars",
        pale=tuple(i for i, row in enumerate(rows) if not row["checked"]),
    )
    line = Series(
        "left so far",
        layers,
        tuple(100 * row["cumulative"] for row in rows),
        tuple(f"{percent(row['cumulative'])} left by layer {row['layer']}" for row in rows),
        tone="rival",
    )
    return Chart(
        title="Where samples leave",
        name="exits_where_samples_leave",
        x=Axis("layer", (0.4, report.depth + 0.6), whole=True),
        y=Axis(f"% of {report.samples:,} samples", (0.0, 105.0)),
        series=(bars, line),
        summary="Bars: the share of samples that leaves at each layer; a line: the share that has left so far",
        about=LEAVING,
        height=1.8,
    )


def _forecast(report: ExitReport) -> Chart:
    rows = report.curve.dropna(subset=["predicted", "measured"]).to_dict(orient="records")
    predicted, measured = (tuple(float(row[name]) for row in rows) for name in ("predicted", "measured"))
    low, high = 0.95 * min(*predicted, *measured), 1.05 * max(*predicted, *measured)
    guides = tuple(
        Series("", (low, high), (factor * low, factor * high), mark="guide", tone="muted") for factor in (0.9, 1, 1.1)
    )
    points = Series(
        "a point for each threshold",
        predicted,
        measured,
        tuple(
            f"threshold {threshold(row['threshold'])}: {times(row['predicted'])} predicted, {times(row['measured'])} "
            "measured"
            for row in rows
        ),
        mark="points",
        marked=tuple(i for i, row in enumerate(rows) if row["chosen"]),
    )
    return Chart(
        title="Predicted and measured speed",
        name="exits_predicted_and_measured_speed",
        x=Axis("predicted (×)", (low, high)),
        y=Axis("measured (×)", (low, high)),
        series=(*guides, points),
        summary=f"{times(report.predicted)} predicted, {times(report.measured)} measured",
        about=FORECAST,
        note="Lines: measured as predicted, and 10 % to each side.",
    )


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
    columns = [Column("threshold"), Column("mean layer")]
    columns += [Column(name, unit="speed-up") for name in ("by depth", "predicted", "measured")]
    columns += [*_accuracy(report), Column("differ", unit="% of predictions")]
    legend = (
        "By depth: the layers that are left out, as a speed-up, Σ L·mᵢ / Σ i·mᵢ for mᵢ samples that leave at layer i. "
        f"Predicted and measured: times the plain model's speed on {report.machine}. Differ: predictions that are not "
        "the plain model's."
    )
    return Table(f"By threshold ({CHOSEN} chosen)", tuple(columns), tuple(rows), (legend,), name="exit-curve")


def _layers(report: ExitReport) -> Table:
    rows = []
    for found in report.layers.to_dict(orient="records"):
        last = found["layer"] == report.depth
        exits = "end" if last else "yes" if found["checked"] else "–"
        counted = found["checked"] or last
        cells = [Cell(str(found["layer"]), value=found["layer"]), Cell(exits, value=exits)]
        cells.append(Cell(f"{found['leaving']:,}", value=found["leaving"]) if counted else EMPTY)
        share = Cell(percent(found["share"]), value=100 * found["share"], share=found["share"])
        cells.append(share if counted else EMPTY)
        cells.append(_percent(found["cumulative"]))
        cells += _scored(report, found["layer_accuracy"])
        rows.append(Row((*cells, _percent(found["layer_agreement"])), marked=bool(found["checked"])))
    columns = [Column("layer"), Column("exit"), Column("leave", unit="samples"), Column("share", "left", unit="%")]
    columns += [Column("so far", unit="%"), *_accuracy(report), Column("agree", unit="%")]
    what = "Accuracy, and agreement" if report.labelled else "Agreement"
    legend = f"{what} with the plain model: of all samples, if all left there."
    return Table("Where samples leave", tuple(columns), tuple(rows), (legend,), name="exit-layers")


def _depths(report: ExitReport) -> Table:
    rows = []
    for found in report.depths.to_dict(orient="records"):
        cells = [Cell(f"{found['layer']} of {report.depth}", value=found["layer"])]
        cells += [*_scored(report, found["accuracy"]), _percent(found["disagreement"]), _times(found["measured"])]
        rows.append(Row((*cells, Cell(f"{found['parameters']:,}", value=found["parameters"]))))
    columns = [Column("layers"), *_accuracy(report), Column("differ", unit="% of predictions")]
    columns += [Column("measured", unit="speed-up"), Column("parameters")]
    legend = "The rival: every sample leaves at the same layer, and the layers above it are gone."
    return Table("The model truncated instead", tuple(columns), tuple(rows), (legend,), name="exit-depths")


def _accuracy(report: ExitReport) -> list[Column]:
    return [Column("accuracy", unit="%")] if report.labelled else []
