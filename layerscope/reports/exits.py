"""A report of exits in a terminal: the verdict, the guarantee, and tables by threshold, by layer and by truncation."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from layerscope.early_exit.exit_report import ExitReport
from layerscope.reports.curves import number
from layerscope.reports.exit_findings import findings, percent, threshold, times
from layerscope.reports.plain import plain

CHOSEN = "●"
BAR = 12
EIGHTHS = " ▏▎▍▌▋▊▉"


def show(report: ExitReport, console: Console | None = None) -> None:
    """Print a report, the verdict first; every name that came from a model or data is printed as it is."""
    console = console or Console()
    console.print(Text(plain(report.verdict), style="bold"))
    console.print(Text(plain(report.goal)))
    console.print(_heading(report))
    for sentence in findings(report):
        console.print(Text(plain(sentence)))
    _print(console, f"By threshold ({CHOSEN} chosen)", _curve(report))
    _print(console, "Where samples leave, and what all of them would score there", _layers(report))
    _print(console, "The model truncated instead", _depths(report))
    console.print(Text(f"\n{_legend(report)}", style="dim"))
    for note in report.notes:
        console.print(Text(plain(note), style="dim"))


def _heading(report: ExitReport) -> Text:
    names = (plain(report.model), "bold"), " on ", (plain(report.data), "bold")
    facts = [
        f"{report.depth} layers", f"{report.classes:,} classes",
        f"{report.samples:,} samples (exits chosen on {report.design:,})", f"batch size {report.batch_size}",
    ]  # fmt: skip
    return Text.assemble(*names, "".join(f" · {fact}" for fact in facts))


def _print(console: Console, title: str, table: Table) -> None:
    if table.row_count:
        console.print(Text(f"\n{title}", style="bold"))
        console.print(Padding(table, (0, 0, 0, 0), expand=False))


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for column in columns:
        table.add_column(column, justify="right" if column.strip() else "left", no_wrap=True)
    return table


def _curve(report: ExitReport) -> Table:
    scored = ["accuracy"] if report.labelled else []
    table = _table("", "threshold", "mean layer", "by depth", "predicted", "measured", *scored, "differ")
    for row in report.curve.to_dict(orient="records"):
        cells = [CHOSEN if row["chosen"] else "", threshold(row["threshold"]), number(row["mean_layer"])]
        cells += [times(row[name]) for name in ("exit_speedup", "predicted", "measured")]
        cells += [percent(row["accuracy"])] if scored else []
        table.add_row(*cells, percent(row["disagreement"], 2), style="bold" if row["chosen"] else "")
    return table


def _layers(report: ExitReport) -> Table:
    scored = ["accuracy"] if report.labelled else []
    table = _table("layer", "exit", "leave", "share", " ", "so far", *scored, "agree")
    most = float(report.layers["share"].max()) if len(report.layers) else 0.0
    for row in report.layers.to_dict(orient="records"):
        last = row["layer"] == report.depth
        place = "end" if last else "yes" if row["checked"] else "–"
        counted = row["checked"] or last
        cells = [str(row["layer"]), place, f"{row['leaving']:,}" if counted else ""]
        cells += [percent(row["share"]) if counted else "", bar(row["share"], most), percent(row["cumulative"])]
        cells += [percent(row["layer_accuracy"])] if scored else []
        table.add_row(*cells, percent(row["layer_agreement"]))
    return table


def _depths(report: ExitReport) -> Table:
    scored = ["accuracy"] if report.labelled else []
    table = _table("layers", *scored, "differ", "measured", "parameters")
    for row in report.depths.to_dict(orient="records"):
        cells = [f"{row['layer']} of {report.depth}", *([percent(row["accuracy"])] if scored else [])]
        table.add_row(*cells, percent(row["disagreement"]), times(row["measured"]), f"{row['parameters']:,}")
    return table


def bar(share: float, most: float) -> str:
    """Return a share as a bar, the largest of all being 12 characters long."""
    eighths = round(8 * BAR * share / most) if most > 0 else 0
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def _legend(report: ExitReport) -> str:
    return (
        "By depth: the layers that are left out, as a speed-up. Predicted and measured: times the plain model's speed "
        f"on {plain(report.machine)}. Differ, agree: predictions against the plain model's."
    )
