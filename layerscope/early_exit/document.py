"""A report of exits as a document: the verdict, the guarantee, and what both rest on in charts and tables."""

from functools import partial
from typing import TYPE_CHECKING, Any

from layerscope.core.errors import capital
from layerscope.early_exit.findings import (
    findings,
    qualities,
    threshold,
    timed,
    truncations,
    with_quality,
)
from layerscope.show import (
    Axis,
    Cell,
    Chart,
    Column,
    Document,
    Facts,
    Meaning,
    Section,
    Sentences,
    Series,
    Table,
    number,
    percent,
    times,
    words,
)

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


def document(report: "ExitReport") -> Document:
    """Return what exits gain, what is guaranteed, and the charts and tables that both rest on."""
    sentences = Sentences("", tuple(findings(report)))
    curve = _curve(report)
    layers = _layers(report)
    chosen_on = f", the exits chosen on {report.design:,}" if report.design else ""
    samples = f"{report.samples:,} samples{chosen_on}"
    settings = {
        "exits": ", ".join(map(str, report.exits)) or "none",
        "threshold": threshold(report.threshold),
        "batch size": str(report.batch_size),
        "machine": report.machine,
        "exit model": report.path or "not written",
    }
    return Document(
        answer=capital(report.verdict),
        reasons=(capital(report.goal),),
        title=(report.model, report.data),
        facts=(f"{report.depth} layers", f"{report.classes:,} classes", samples),
        parts=(sentences, curve, layers),
        lead=(sentences, curve),
        notes=report.notes,
        sections=(
            Section("exits", "Early exit", LEAD, (_speed(report), curve, layers)),
        ),
        details=(
            Sentences("Noted on the way:", report.notes),
            Facts(tuple(settings.items())),
        ),
        kind="early exits",
    )


def _speed(report: "ExitReport") -> Chart:
    """Return quality against speed: exits, truncated models, and the plain model."""
    chosen, plain = qualities(report)
    curve = with_quality(report, report.curve).sort_values(
        "mean_layer", ascending=False
    )
    cut = truncations(report)
    cut = cut[cut["quality"] >= curve["quality"].min()]
    what = "Accuracy" if report.labelled else "Agreement"
    return Chart(
        title=f"{what} against speed",
        name=f"exits_{what.lower()}_against_speed",
        x=Axis("measured speed-up (×)"),
        y=Axis(f"{what.lower()} (%)", scale=100),
        series=(
            Series.of(cut, "measured", "quality", "truncated at a layer", tone="rival"),
            Series.of(
                curve, "measured", "quality", "exits, a point for each threshold"
            ),
            Series("plain model", (1.0,), (plain,), mark="points", tone="ink"),
        ),
        summary=f"{percent(chosen)} at {times(report.measured)}",
        about=SPEED,
        note="Truncated models below all exits are only in the table.",
    )


def _share(title: str, field: str, digits: int = 1, unit: str = "%") -> Column:
    """Return a column of shares in percent."""
    return Column(
        title, unit=unit, field=field, form=partial(percent, digits=digits), factor=100
    )


def _measured(row: Any) -> Cell:
    """Return a measured speed-up with its error."""
    text, error = timed(row["measured"], row["error"]).partition(" ")[::2]
    return Cell(text, error, row["measured"])


def _labelled(report: "ExitReport") -> list[Column]:
    """Return the column of accuracies, where there are labels."""
    if report.labelled:
        return [_share("accuracy", "accuracy")]
    return []


def _curve(report: "ExitReport") -> Table:
    """Return a row for each threshold."""

    def name(row: Any) -> Cell:
        text = f"{CHOSEN} " * row["chosen"] + threshold(row["threshold"])
        return Cell(text, value=row["threshold"])

    legend = (
        "By depth: the layers that are left out, as a speed-up, Σ L·mᵢ / Σ i·mᵢ for mᵢ samples that leave at layer i; "
        "a batch that gets shorter when long samples leave adds to it. "
        f"Measured: times the plain model's speed on {report.machine}; ± is one standard error. Differ: "
        "predictions that are not the plain model's."
    )
    columns = [
        Column("threshold", cell=name),
        Column("mean layer", field="mean_layer", form=number),
        Column("by depth", unit="speed-up", field="exit_speedup", form=times),
        Column("measured", unit="speed-up", cell=_measured),
        *_labelled(report),
        _share("differ", "disagreement", 2, "% of predictions"),
    ]
    title = f"By threshold ({CHOSEN} chosen)"
    return Table.of(
        report.curve, columns, title, "chosen", legend=(legend,), name="exit-curve"
    )


def _layers(report: "ExitReport") -> Table:
    """Return a row for each layer: who leaves there, and the model truncated there."""

    def exit(row: Any) -> Cell:
        if row["layer"] == report.depth:
            return words("end")
        if row["checked"]:
            return words("yes")
        return words("–")

    columns = [
        Column("layer", field="layer"),
        Column("exit", cell=exit),
        Column("leave", "left", unit="%", field="share", form=percent, factor=100),
        *_labelled(report),
        _share("differ", "disagreement", unit="% of predictions"),
        Column("truncated", unit="speed-up", cell=_measured),
    ]
    legend = (
        "Leave: at this exit. The rest is the rival, the model truncated at the layer: every sample ends there, and "
        "the layers above are removed."
    )
    rows = report.layers.merge(report.depths, on="layer")
    title = "By layer, and the model truncated there"
    return Table.of(
        rows, columns, title, "checked", legend=(legend,), name="exit-layers"
    )
