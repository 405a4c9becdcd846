"""A report of exits as a document: the verdict, the guarantee, and what both rest on in charts and tables."""

from collections.abc import Callable, Iterator
from dataclasses import replace
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
    Row,
    Section,
    Sentences,
    Table,
)
from layerscope.show.numbers import number, percent, times
from layerscope.show.plots import Axis, Chart, Meaning, Series

if TYPE_CHECKING:
    from layerscope.early_exit.exit_report import ExitReport

Show = Callable[[Any], Cell]
"""Makes the cell of one column of a row."""
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


def _series(
    name: str,
    rows: pd.DataFrame,
    axes: tuple[str, str],
    text: Callable[[Any], str],
    scale: float = 100.0,
    **how: Any,
) -> Series:
    """Return two columns as a series, shares of the second in percent, with a text on each row; `chosen` is marked."""
    x, y = rows[axes[0]].astype(float).tolist(), (scale * rows[axes[1]]).tolist()
    chosen = np.flatnonzero(rows["chosen"]).tolist() if "chosen" in rows else ()
    return Series(
        name,
        tuple(x),
        tuple(y),
        tuple(map(text, rows.to_dict(orient="records"))),
        marked=tuple(chosen),
        **how,
    )


def _speed(report: "ExitReport") -> Chart:
    (own, plain), reached, cut = qualities(report), window(report), truncations(report)
    curve = measured(report, report.curve).sort_values("mean_layer", ascending=False)
    what = "Accuracy" if report.labelled else "Agreement"

    def point(row: Any) -> str:
        return f"{percent(row['quality'])}, {times(row['measured'])}"

    return Chart(
        title=f"{what} against speed",
        name=f"exits_{what.lower()}_against_speed",
        x=Axis("measured speed-up (×)", reached and reached[0]),
        y=Axis(f"{what.lower()} (%)", reached and (100 * reached[1][0], 100 * reached[1][1])),
        series=(
            _series(
                "truncated at a layer",
                cut,
                ("measured", "quality"),
                lambda row: f"truncated at layer {row['layer']}: {point(row)}",
                labels=tuple(map(str, cut["layer"])),
                tone="rival",
            ),
            _series(
                "exits, a point for each threshold",
                curve,
                ("measured", "quality"),
                lambda row: (
                    f"threshold {threshold(row['threshold'])}, mean layer {number(row['mean_layer'])}: "
                    f"{point(row)}"
                ),
            ),
            Series(
                "plain model",
                (1.0,),
                (100 * plain,),
                (f"plain model: {percent(plain)}, 1×",),
                mark="points",
                tone="ink",
            ),
        ),
        summary=f"{percent(own)} at {times(report.measured)}",
        about=SPEED,
        note="Truncated models far below the exits are only in the table.",
        height=2.3,
    )


def _leaving(report: "ExitReport") -> Chart:
    rows = report.layers

    def kind(row: Any) -> str:
        return (
            "exit"
            if row["checked"]
            else "through all layers"
            if row["layer"] == report.depth
            else "no exit"
        )

    return Chart(
        title="Where samples leave",
        name="exits_where_samples_leave",
        x=Axis("layer", (0.4, report.depth + 0.6), whole=True),
        y=Axis(f"% of {report.samples:,} samples", (0.0, 105.0)),
        series=(
            _series(
                "leave at an exit (pale: at the end)",
                rows,
                ("layer", "share"),
                lambda row: (
                    f"layer {row['layer']}, {kind(row)}: {row['leaving']:,} samples, {percent(row['share'])}"
                ),
                mark="bars",
                pale=tuple(np.flatnonzero(~rows["checked"]).tolist()),
            ),
            _series(
                "left so far",
                rows,
                ("layer", "cumulative"),
                lambda row: f"{percent(row['cumulative'])} left by layer {row['layer']}",
                tone="rival",
            ),
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
    points = _series(
        "a point for each threshold",
        rows,
        ("predicted", "measured"),
        lambda row: (
            f"threshold {threshold(row['threshold'])}: {times(row['predicted'])} predicted, "
            f"{times(row['measured'])} measured"
        ),
        scale=1.0,
        mark="points",
    )
    guides = tuple(
        Series("", (low, high), (factor * low, factor * high), mark="guide", tone="muted")
        for factor in (0.9, 1, 1.1)
    )
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


def _table(
    report: "ExitReport",
    title: str,
    name: str,
    rows: pd.DataFrame,
    columns: dict[Column, Show],
    legend: str,
    marked: str = "",
) -> Table:
    """Return a row for each of a table, its cells made by the functions beside their columns."""
    known = {
        column: show
        for column, show in columns.items()
        if report.labelled or column.title != "accuracy"
    }
    shown = (
        Row(tuple(show(row) for show in known.values()), marked=bool(row.get(marked)))
        for row in rows.to_dict(orient="records")
    )
    return Table(title, tuple(known), tuple(shown), (legend,), name=name)


def _as(form: Callable[[Any], str], name: str, factor: int = 1) -> Show:
    return lambda row: Cell(form(row[name]), value=factor * row[name])


def _percent(name: str, digits: int = 1) -> Show:
    return _as(lambda share: percent(share, digits), name, 100)


def _measured(row: Any) -> Cell:
    text, error = timed(row["measured"], row["error"]).partition(" ")[::2]
    return Cell(text, error, row["measured"])


def _curve(report: "ExitReport") -> Table:
    def name(row: Any) -> Cell:
        return Cell(
            f"{CHOSEN} " * row["chosen"] + threshold(row["threshold"]), value=row["threshold"]
        )

    columns = {
        Column("threshold"): name,
        Column("mean layer"): _as(number, "mean_layer"),
        Column("by depth", unit="speed-up"): _as(times, "exit_speedup"),
        Column("predicted", unit="speed-up"): _as(times, "predicted"),
        Column("measured", unit="speed-up"): _measured,
        Column("accuracy", unit="%"): _percent("accuracy"),
        Column("differ", unit="% of predictions"): _percent("disagreement", 2),
    }
    legend = (
        "By depth: the layers that are left out, as a speed-up, Σ L·mᵢ / Σ i·mᵢ for mᵢ samples that leave at layer i; "
        "a batch that gets shorter when long samples leave adds to it. "
        f"Predicted and measured: times the plain model's speed on {report.machine}; ± is one standard error. Differ: "
        "predictions that are not the plain model's."
    )
    return _table(
        report,
        f"By threshold ({CHOSEN} chosen)",
        "exit-curve",
        report.curve,
        columns,
        legend,
        "chosen",
    )


def _layers(report: "ExitReport") -> Table:
    def exit(row: Any) -> Cell:
        text = "end" if row["layer"] == report.depth else "yes" if row["checked"] else "–"
        return Cell(text, value=text)

    def where_left(show: Show) -> Show:
        return lambda row: show(row) if row["checked"] or row["layer"] == report.depth else EMPTY

    columns = {
        Column("layer"): _as(str, "layer"),
        Column("exit"): exit,
        Column("leave", unit="samples"): where_left(_as("{:,}".format, "leaving")),
        Column("share", "left", unit="%"): where_left(
            lambda row: replace(_percent("share")(row), share=row["share"])
        ),
        Column("so far", unit="%"): _percent("cumulative"),
        Column("accuracy", unit="%"): _percent("layer_accuracy"),
        Column("agree", unit="%"): _percent("layer_agreement"),
    }
    what = "Accuracy, and agreement" if report.labelled else "Agreement"
    legend = f"{what} with the plain model: of all samples, if all left there."
    return _table(
        report, "Where samples leave", "exit-layers", report.layers, columns, legend, "checked"
    )


def _depths(report: "ExitReport") -> Table:
    columns = {
        Column("layers"): _as(lambda layer: f"{layer} of {report.depth}", "layer"),
        Column("accuracy", unit="%"): _percent("accuracy"),
        Column("differ", unit="% of predictions"): _percent("disagreement"),
        Column("measured", unit="speed-up"): _measured,
        Column("parameters"): _as("{:,}".format, "parameters"),
    }
    legend = (
        "The rival: every sample leaves at the same layer, and the layers above it are removed."
    )
    return _table(
        report, "The model truncated instead", "exit-depths", report.depths, columns, legend
    )
