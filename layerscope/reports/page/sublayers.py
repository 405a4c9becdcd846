"""The page's section on what comes inside the blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from layerscope.reports.page.content import Figure, Section, Shown, curve_figure
from layerscope.runs.curves import inside, panels
from layerscope.runs.sublayers import site_name, told_steps

LEAD = (
    "After each norm, attention (or another branch that mixes tokens), MLP and residual addition, and what the block "
    "gives."
)


def sublayer_sections(runs: Sequence[Shown]) -> list[Section]:
    """Return one section with a plot for each metric of each run with sub-layers, a line for each site."""
    figures = [figure for i in range(len(runs)) for figure in _figures(i, runs)]
    return [Section("sublayers", "Inside the blocks", LEAD, (tuple(figures),))] if figures else []


def _figures(index: int, runs: Sequence[Shown]) -> list[Figure]:
    found = []
    of = f", {runs[index].name}" if len(runs) > 1 else ""
    for (_, variant), curves in panels(inside(runs[index].run)).items():
        panel = [replace(c, final=None, stands_out=None) for c in curves if c.pooling == curves[0].pooling]
        told = f" ({variant})" if variant and variant != "alpha=1" else ""
        figure = curve_figure(
            [(index, curve) for curve in panel], runs, f"{panel[0].title}{told} inside the blocks{of}"
        )
        for i, (line, curve) in enumerate(zip(figure.drawn["lines"], panel, strict=True)):
            line |= {"name": site_name(curve.site), "look": i, "final": False}
        summary = told_steps(panel) or f"{panel[0].title} at every site of the blocks"
        found.append(replace(figure, summary=summary))
    return found
