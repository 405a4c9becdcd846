"""A report of exits as a document: the verdict, the guarantee, and what both rest on in charts and tables."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from layerscope.early_exit.findings import (
    findings,
    measured,
    qualities,
    threshold,
    timed,
    truncations,
    window,
)
from layerscope.runs.registry import capital
from layerscope.show.document import (
    EMPTY,
    Cell,
    Column,
    Document,
    Facts,
    Section,
    Sentences,
    Table,
    words,
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
    "The share of all samples that leaves at each layer with the chosen threshold; the rest goes through all layers.",
    "Samples that leave early save time; what the checks cost is part of the measured speed, not of this figure.",
    "Jiang, Zhou, Zhu 2025, Tracing Representation Progression, figure 7",
)
FORECAST = Meaning(
    "Speed-ups predicted from the times of a block, a check and a compaction on this machine, and those measured.",
    "On the diagonal the prediction was right; the dotted lines are 10 % to each side.",
    "measured here",
)


def document(report: "ExitReport") -> Document:
    """Return what exits gain, what is guaranteed, and the charts and tables that both rest on."""
    found, tables = (
        Sentences("", tuple(findings(report))),
        (_curve(report), _layers(report), _depths(report)),
    )
    chosen_on = f", the exits chosen on {report.design:,}" if report.design else ""
    settings = {
        "model": report.model,
        "data": report.data,
        "samples": f"{report.samples:,}{chosen_on}",
        "exits": ", ".join(map(str, report.exits)) or "none",
        "criterion": report.criterion,
        "threshold": threshold(report.threshold),
        "batch size": str(report.batch_size),
        "machine": report.machine,
        "guarantee": report.goal,
        "exit model": report.path or "",
    }
    charts = [
        _speed(report),
        *([_leaving(report)] if len(report.layers) else []),
        *_forecast(report),
    ]
    return Document(
        answer=capital(report.verdict),
        reasons=(capital(report.goal),),
        title=(report.model, report.data),
        facts=(
            f"{report.depth} layers",
            f"{report.classes:,} classes",
            f"{report.samples:,} samples{chosen_on}",
            f"batch size {report.batch_size}",
        ),
        parts=(found, *tables),
        lead=(found, tables[0]),
        notes=report.notes,
        sections=(Section("exits", "Early exit", LEAD, (*charts, *tables)),),
        details=(
            Sentences("Noted on the way:", report.notes),
            Facts(tuple((name, fact) for name, fact in settings.items() if fact)),
            Facts(
                tuple(_calibration(report.calibration)) if report.calibration else (), "Calibration"
            ),
        ),
        kind="early exits",
    )


def _calibration(known: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a calibration says, that of its goal too, as facts."""
    for name, entry in pd.json_normalize(known, sep=", ").to_dict(orient="records")[0].items():
        text = ", ".join(map(str, entry)) or "–" if isinstance(entry, list) else entry
        yield (
            str(name).replace("_", " "),
            number(text) if isinstance(text, float) else str("–" if text is None else text),
        )


def _speed(report: "ExitReport") -> Chart:
    (own, plain), reached, cut = qualities(report), window(report), truncations(report)
    curve = measured(report, report.curve).sort_values("mean_layer", ascending=False)
    what = "Accuracy" if report.labelled else "Agreement"
    truncated = Series.of(
        cut,
        "measured",
        "quality",
        "truncated at a layer",
        labels=tuple(map(str, cut["layer"])),
        tone="rival",
    )
    exits = Series.of(curve, "measured", "quality", "exits, a point for each threshold")
    return Chart(
        title=f"{what} against speed",
        name=f"exits_{what.lower()}_against_speed",
        x=Axis("measured speed-up (×)", reached and reached[0]),
        y=Axis(
            f"{what.lower()} (%)", reached and (100 * reached[1][0], 100 * reached[1][1]), scale=100
        ),
        series=(
            truncated,
            exits,
            Series("plain model", (1.0,), (plain,), mark="points", tone="ink"),
        ),
        summary=f"{percent(own)} at {times(report.measured)}",
        about=SPEED,
        note="Truncated models far below the exits are only in the table.",
        height=2.3,
    )


def _leaving(report: "ExitReport") -> Chart:
    rows = report.layers
    pale = tuple(np.flatnonzero(~rows["checked"]).tolist())
    name = "leave at an exit (pale: at the end)"
    return Chart(
        title="Where samples leave",
        name="exits_where_samples_leave",
        x=Axis("layer", (0.4, report.depth + 0.6), whole=True),
        y=Axis(f"% of {report.samples:,} samples", (0.0, 105.0), scale=100),
        series=(
            Series.of(rows, "layer", "share", name, mark="bars", pale=pale),
            Series.of(rows, "layer", "cumulative", "left so far", tone="rival"),
        ),
        summary="Bars: the share of samples that leaves at each layer; a line: the share that has left so far",
        about=LEAVING,
        height=1.8,
    )


def _forecast(report: "ExitReport") -> Iterator[Chart]:
    rows = report.curve.dropna(subset=["predicted", "measured"])
    if rows.empty:
        return
    values = rows[["predicted", "measured"]].to_numpy()
    low, high = 0.95 * float(values.min()), 1.05 * float(values.max())
    guides = (
        Series("", (low, high), (factor * low, factor * high), mark="guide", tone="muted")
        for factor in (0.9, 1, 1.1)
    )
    points = Series.of(rows, "predicted", "measured", "a point for each threshold", mark="points")
    yield Chart(
        title="Predicted and measured speed",
        name="exits_predicted_and_measured_speed",
        x=Axis("predicted (×)", (low, high)),
        y=Axis("measured (×)", (low, high)),
        series=(*guides, points),
        summary=f"{times(report.predicted)} predicted, {times(report.measured)} measured",
        about=FORECAST,
        note="Lines: measured as predicted, and 10 % to each side.",
    )


def _share(title: str, field: str, digits: int = 1, unit: str = "%") -> Column:
    return Column(title, unit=unit, field=field, form=partial(percent, digits=digits), factor=100)


def _speedup(title: str, field: str) -> Column:
    return Column(title, unit="speed-up", field=field, form=times)


def _measured(row: Any) -> Cell:
    text, error = timed(row["measured"], row["error"]).partition(" ")[::2]
    return Cell(text, error, row["measured"])


MEASURED = Column("measured", unit="speed-up", cell=_measured)


def _curve(report: "ExitReport") -> Table:
    def name(row: Any) -> Cell:
        text = f"{CHOSEN} " * row["chosen"] + threshold(row["threshold"])
        return Cell(text, value=row["threshold"])

    legend = (
        "By depth: the layers that are left out, as a speed-up, Σ L·mᵢ / Σ i·mᵢ for mᵢ samples that leave at layer i; "
        "a batch that gets shorter when long samples leave adds to it. "
        f"Predicted and measured: times the plain model's speed on {report.machine}; ± is one standard error. Differ: "
        "predictions that are not the plain model's."
    )
    columns = [
        Column("threshold", cell=name),
        Column("mean layer", field="mean_layer", form=number),
        _speedup("by depth", "exit_speedup"),
        _speedup("predicted", "predicted"),
        MEASURED,
        *_labelled(report, _share("accuracy", "accuracy")),
        _share("differ", "disagreement", 2, "% of predictions"),
    ]
    title = f"By threshold ({CHOSEN} chosen)"
    return Table.of(report.curve, columns, title, "chosen", legend=(legend,), name="exit-curve")


def _labelled(report: "ExitReport", column: Column) -> list[Column]:
    """Return a column that needs labels, where there are labels."""
    return [column] if report.labelled else []


def _layers(report: "ExitReport") -> Table:
    def leaves(row: Any) -> bool:
        return bool(row["checked"] or row["layer"] == report.depth)

    def exit(row: Any) -> Cell:
        return words("end" if row["layer"] == report.depth else "yes" if row["checked"] else "–")

    def leaving(row: Any) -> Cell:
        return Cell(f"{row['leaving']:,}", value=row["leaving"]) if leaves(row) else EMPTY

    def share(row: Any) -> Cell:
        left = Cell(percent(row["share"]), value=100 * row["share"], share=row["share"])
        return left if leaves(row) else EMPTY

    columns = [
        Column("layer", field="layer"),
        Column("exit", cell=exit),
        Column("leave", unit="samples", cell=leaving),
        Column("share", "left", unit="%", cell=share),
        _share("so far", "cumulative"),
        *_labelled(report, _share("accuracy", "layer_accuracy")),
        _share("agree", "layer_agreement"),
    ]
    what = "Accuracy, and agreement" if report.labelled else "Agreement"
    legend = f"{what} with the plain model: of all samples, if all left there."
    title = "Where samples leave"
    return Table.of(report.layers, columns, title, "checked", legend=(legend,), name="exit-layers")


def _depths(report: "ExitReport") -> Table:
    columns = [
        Column("layers", field="layer", form=lambda layer: f"{layer} of {report.depth}"),
        *_labelled(report, _share("accuracy", "accuracy")),
        _share("differ", "disagreement", unit="% of predictions"),
        MEASURED,
        Column("parameters", field="parameters", form="{:,}".format),
    ]
    legend = (
        "The rival: every sample leaves at the same layer, and the layers above it are removed."
    )
    title = "The model truncated instead"
    return Table.of(report.depths, columns, title, legend=(legend,), name="exit-depths")
