"""What comes inside the blocks of a run with sub-layers, for a terminal: one metric by site, and who compresses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from layerscope.runs.curves import Curve, inside, panels
from layerscope.show.numbers import number

if TYPE_CHECKING:
    from layerscope.runs.run import Run

BLOCK = "raw"


def site_name(site: str) -> str:
    """Return a site as a person reads it."""
    return "block output" if site == BLOCK else site.replace("_", " ")


def first_panel(run: Run) -> list[Curve]:
    """Return the curves of the first metric at every site, of its first pooling; none without sub-layers."""
    found = [*panels(inside(run)).values()]
    return [curve for curve in found[0] if curve.pooling == found[0][0].pooling] if found else []


def steps(panel: list[Curve]) -> Iterator[tuple[str, float]]:
    """Yield by how much one metric changes over each residual addition, on average over the blocks that have it.

    Additions are distinguished from the stream before them: a block's input, or what follows the addition before.
    """
    stream = [c for c in panel if c.site.endswith("residual")] + [c for c in panel if c.site == BLOCK]
    if len(stream) < 2:
        return
    before = {layer + 1: stream[-1].at(layer)[0] for layer in stream[-1].layers}
    for curve in stream:
        after = {layer: curve.at(layer)[0] for layer in curve.layers}
        changes = [after[layer] - before[layer] for layer in after if layer in before]
        known = [change for change in changes if math.isfinite(change)]
        if known:
            yield curve.site, float(np.mean(known))
        before = before | after


def told_steps(panel: list[Curve]) -> str | None:
    """Return the sentence on which residual addition moves a metric; None where there is one addition a block."""
    found = list(steps(panel))
    if not found:
        return None
    unit, scale = "points" if panel[0].unit == "%" else panel[0].unit, panel[0].scale
    said = ", ".join(
        f"{number(scale * change)} {unit} up to the {site_name(site)}".replace("  ", " ") for site, change in found
    )
    return f"Change of {panel[0].title} inside a block, on average: {said}."
