"""How near each sample is to its last layer, as boxes by layer."""

from __future__ import annotations

from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from layerscope.reports.boxes import WHISKERS
from layerscope.reports.figures.lines import kinds_of, mark_layers
from layerscope.reports.figures.member import Member, sheet_title
from layerscope.show.figures import style
from layerscope.show.plain import plain, pooling_name

LIGHT = 0.35


def draw_boxes(members: list[Member], width: float) -> Any:
    """Return a figure of each sample's cosine to the last layer: a panel for each run, a box for each layer."""
    shown = [member for member in members if member.boxes]
    columns = style.panel_columns(width, len(shown))
    figure, axes = style.sheet(width, len(shown), columns, 2.0, sheet_title(members))
    for axis, member in zip(axes, shown, strict=True):
        _boxes(axis, member, _color(member, members))
        mark_layers(axis, member.boxes[-1].layer, most=8 if width / columns > 2 else 5)
        pooling = pooling_name(member.boxes_pooling)
        axis.set_title(f"cosine to the last layer, {pooling}" if member.alone else f"{plain(member.name)}\n{pooling}")
        axis.set_ylabel("cosine to the last layer" if not member.alone else "cosine")
    style.label_below(axes, columns, "layer")
    color = _color(members[0], members) if members[0].alone else "#777777"
    style.explain(
        figure,
        [
            Line2D([], [], color=style.DARK, linewidth=1.2, label="median of the samples"),
            Patch(facecolor=color, alpha=LIGHT, edgecolor=style.DARK, linewidth=0.6, label="quarter to three quarters"),
            Line2D([], [], color=style.DARK, linewidth=0.6, label=f"{WHISKERS[0]} % to {WHISKERS[1]} %"),
        ],
    )
    return style.finish(figure)


def _color(member: Member, members: list[Member]) -> str:
    """Return the colour of a run; where it is alone that of the pooling of its boxes, as on all its figures."""
    kinds, pooling = kinds_of(members), member.boxes_pooling
    kind = kinds.index(pooling) if pooling in kinds else 0
    return str(style.look(kind if member.alone else member.number)["color"])


def _boxes(axis: Any, member: Member, color: str) -> None:
    thin = {"color": style.DARK, "linewidth": 0.6}
    axis.bxp(
        [{"q1": b.first, "med": b.median, "q3": b.third, "whislo": b.low, "whishi": b.high} for b in member.boxes],
        positions=[box.layer for box in member.boxes],
        widths=0.6,
        showfliers=False,
        patch_artist=True,
        manage_ticks=False,
        boxprops={"facecolor": (color, LIGHT), "edgecolor": style.DARK, "linewidth": 0.6},
        medianprops={"color": style.DARK, "linewidth": 1.2},
        whiskerprops=thin,
        capprops=thin,
    )
