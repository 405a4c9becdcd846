"""Where the predictions of a model settle."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from layerscope.reports.figures.lines import draw_panel, mark_layers
from layerscope.reports.figures.member import Member, sheet_title
from layerscope.runs.curves import Curve
from layerscope.show.figures import style
from layerscope.show.numbers import number
from layerscope.show.plain import plain


def draw_saturation(members: list[Member], width: float) -> Any:
    """Return a figure of the share of predictions settled at each layer, a panel for each run.

    Beside a run that is alone: its perplexity, or accuracy, by layer.
    """
    shown = [(member, member.of("saturated")[0]) for member in members if member.of("saturated")]
    beside = _beside(members[0]) if members[0].alone else None
    count = len(shown) + (beside is not None)
    columns = style.panel_columns(width, count)
    figure, axes = style.sheet(width, count, columns, 1.8, sheet_title(members))
    for axis, (member, curve) in zip(axes, shown, strict=False):
        _bars(axis, member, curve, most=8 if width / columns > 2 else 5)
        axis.set_title("where predictions settle" if member.alone else plain(member.name))
    if beside is not None:
        draw_panel(axes[-1], [(members[0], beside)], [], several=False)
        mark_layers(axes[-1], members[0].run.depth, most=8)
        axes[-1].set_xlabel("layer, read through the model's head")
    return style.finish(figure)


def _beside(member: Member) -> Curve | None:
    return next(iter(member.of("perplexity") + member.of("layer_accuracy")), None)


def _bars(axis: Any, member: Member, curve: Curve, most: int) -> None:
    shares = 100 * np.diff(curve.values, prepend=0.0)
    color = style.look(member.number)["color"]
    axis.bar(curve.layers, shares, color=color, width=0.8)
    axis.set_ylabel(f"% of {curve.n:,} predictions")
    axis.set_xlabel("layer from which the prediction stays" if member.alone else "settles at layer")
    mark_layers(axis, member.run.depth, most, first=1)
    rows = member.run.at()
    mean = rows.loc[rows["metric"] == "saturation_layer", "value"]
    if not len(mean) or not math.isfinite(mean.iloc[0]):
        return
    at, depth = float(mean.iloc[0]), member.run.depth
    axis.set_ylim(0, 1.2 * max(1.0, float(np.nanmax(shares))))
    axis.axvline(at, color=style.DARK, linestyle="--", linewidth=1)
    side = "right" if at > (1 + depth) / 2 else "left"
    place = (at, 0.98)
    axis.annotate(f" mean {number(at)} ", place, xycoords=("data", "axes fraction"), ha=side, va="top")
