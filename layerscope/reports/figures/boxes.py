"""How near each sample is to its last layer, as boxes by layer."""

from __future__ import annotations

from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from layerscope.reports.boxes import WHISKERS
from layerscope.reports.figures import style
from layerscope.reports.figures.lines import mark_layers
from layerscope.reports.figures.member import Member
from layerscope.reports.plain import plain

LIGHT = 0.35


def draw_boxes(members: list[Member], width: float) -> Any:
    """Return a figure of each sample's cosine to the last layer: a panel for each run, a box for each layer."""
    shown = [member for member in members if member.boxes]
    columns = style.panel_columns(width, len(shown))
    figure, axes = style.sheet(width, len(shown), columns, 2.0, members)
    for axis, member in zip(axes, shown, strict=True):
        _boxes(axis, member)
        mark_layers(axis, member.run.depth, most=8 if width / columns > 2 else 5)
        axis.set_title("cosine to the last layer, by sample" if member.alone else plain(member.name))
        axis.set_ylabel("cosine to the last layer" if not member.alone else "cosine")
    style.label_below(axes, columns, "layer")
    color = style.COLORS[0] if members[0].alone else "#777777"
    style.explain(
        figure,
        [
            Line2D([], [], color=style.DARK, linewidth=1.2, label="median of the samples"),
            Patch(facecolor=color, alpha=LIGHT, edgecolor=style.DARK, linewidth=0.6, label="quarter to three quarters"),
            Line2D([], [], color=style.DARK, linewidth=0.6, label=f"{WHISKERS[0]} % to {WHISKERS[1]} %"),
        ],
    )
    return style.finish(figure)


def _boxes(axis: Any, member: Member) -> None:
    thin = {"color": style.DARK, "linewidth": 0.6}
    axis.bxp(
        [{"q1": b.first, "med": b.median, "q3": b.third, "whislo": b.low, "whishi": b.high} for b in member.boxes],
        positions=[box.layer for box in member.boxes],
        widths=0.6,
        showfliers=False,
        patch_artist=True,
        manage_ticks=False,
        boxprops={"facecolor": (style.look(member.number)["color"], LIGHT), "edgecolor": style.DARK, "linewidth": 0.6},
        medianprops={"color": style.DARK, "linewidth": 1.2},
        whiskerprops=thin,
        capprops=thin,
    )
