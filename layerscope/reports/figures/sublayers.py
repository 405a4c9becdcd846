"""What comes inside the blocks of one run: a panel for each metric, a line for each site."""

from __future__ import annotations

from typing import Any

from matplotlib.lines import Line2D

from layerscope.reports.figures.lines import mark_layers
from layerscope.reports.figures.member import Member, sheet_title
from layerscope.runs.curves import inside, panels
from layerscope.runs.sublayers import site_name
from layerscope.show.figures import style
from layerscope.show.plain import plain


def draw_sublayers(member: Member, width: float) -> Any:
    """Return a figure of small multiples: metrics by layer at every site, of the first pooling."""
    found = panels(inside(member.run))
    columns = min(2 if style.is_narrow(width) else 3, len(found))
    figure, axes = style.sheet(width, len(found), columns, 1.45, sheet_title([member]))
    sites: dict[str, dict[str, Any]] = {}
    for axis, curves in zip(axes, found.values(), strict=True):
        for curve in curves:
            if curve.pooling == curves[0].pooling:
                how = sites.setdefault(curve.site, style.look(len(sites)))
                axis.plot(curve.layers, curve.values * curve.scale, **how)
        axis.set_title(plain(curves[0].title))
        axis.set_ylabel(curves[0].unit)
        mark_layers(axis, member.run.depth, most=5)
    style.label_below(axes, columns, "layer")
    style.explain(figure, [Line2D([], [], label=site_name(site), **how) for site, how in sites.items()])
    return style.finish(figure)
