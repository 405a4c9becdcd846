"""Early exit: accuracy against measured speed beside truncated models, and where samples leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from layerscope.early_exit.exit_report import ExitReport
from layerscope.early_exit.findings import exits_by_speed, plain_value, truncations, window
from layerscope.reports.figures import style
from layerscope.reports.figures.lines import mark_layers
from layerscope.show.plain import plain

EXITS: dict[str, Any] = {"color": style.COLORS[0], "marker": "o"}
TRUNCATED: dict[str, Any] = {"color": style.COLORS[1], "marker": "s", "linestyle": style.DASHES[1], "linewidth": 0.9}
PLAIN: dict[str, Any] = {"color": style.DARK, "marker": "D", "markersize": 4.5, "linestyle": "none"}
CHOSEN: dict[str, Any] = {
    "marker": "o", "markersize": 8, "mfc": "none", "mec": style.DARK, "mew": 1.0, "linestyle": "none", "clip_on": False,
}  # fmt: skip
THROUGH = "#c8c8c8"


def draw_pareto(reports: Sequence[ExitReport], width: float) -> Any:
    """Return a figure of accuracy (without labels: agreement) by measured speed-up, a panel for each report."""
    figure, axes, columns = _sheet(reports, width, 2.3)
    labelled = all(report.labelled for report in reports)
    for axis, report in zip(axes, reports, strict=True):
        cut, curve = truncations(report, labelled), exits_by_speed(report, labelled)
        axis.plot(cut["measured"], 100 * cut["quality"], **TRUNCATED)
        for layer, x, y in zip(cut["layer"], cut["measured"], 100 * cut["quality"], strict=True):
            axis.annotate(
                str(int(layer)),
                (x, y),
                (0, -8.5),
                textcoords="offset points",
                ha="center",
                annotation_clip=True,
                fontsize=6.5,
            )
        quality = 100 * curve["quality"]
        axis.plot(curve["measured"], quality, **EXITS)
        axis.plot(curve["measured"][curve["chosen"]], quality[curve["chosen"]], **CHOSEN)
        axis.plot([1.0], [100 * plain_value(report, labelled)], **PLAIN)
        axis.set_ylabel(f"{'accuracy' if labelled else 'agreement'} (%)")
        axis.margins(x=0.07)
        if seen := window(report, labelled):
            axis.set_xlim(*seen[0])
            axis.set_ylim(*(100 * share for share in seen[1]))
    style.label_below(axes, columns, "measured speed-up (×)")
    names = {"exits by threshold": EXITS, "chosen": CHOSEN, "truncated at a layer": TRUNCATED, "plain model": PLAIN}
    style.explain(figure, [Line2D([], [], label=name, **how) for name, how in names.items()])
    return style.finish(figure)


def draw_leaving(reports: Sequence[ExitReport], width: float) -> Any:
    """Return a figure of the share of samples that leaves at each layer, and of those that have left so far."""
    figure, axes, columns = _sheet(reports, width, 1.8)
    line: dict[str, Any] = {"color": style.COLORS[1], "marker": "o"}
    for axis, report in zip(axes, reports, strict=True):
        layers = report.layers
        colors = [EXITS["color"] if checked else THROUGH for checked in layers["checked"]]
        axis.bar(layers["layer"], 100 * layers["share"], color=colors, width=0.8)
        axis.plot(layers["layer"], 100 * layers["cumulative"], **line)
        axis.set_ylim(0, 105)
        axis.set_ylabel(f"% of {report.samples:,} samples")
        mark_layers(axis, report.depth, most=8 if width / columns > 2 else 5, first=1)
    style.label_below(axes, columns, "layer")
    handles = [
        Patch(color=EXITS["color"], label="leave at an exit"),
        Patch(color=THROUGH, label="go through all layers"),
    ]
    style.explain(figure, [*handles, Line2D([], [], label="left so far", **line)])
    return style.finish(figure)


def _sheet(reports: Sequence[ExitReport], width: float, height: float) -> tuple[Any, list[Any], int]:
    """Return a figure, its panels and their columns; of several reports each panel has the name of its own."""
    names = [f"{plain(report.model)} on {plain(report.data)}" for report in reports]
    columns = style.panel_columns(width, len(reports))
    figure, axes = style.sheet(width, len(reports), columns, height, names[0] if len(names) == 1 else "")
    for axis, name in zip(axes, names, strict=True):
        if len(names) > 1:
            axis.set_title(name)
    return figure, axes, columns
