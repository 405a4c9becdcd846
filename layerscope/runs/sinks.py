"""What a run says about tokens of massive norm, where they were counted and some were found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from layerscope.runs.curves import Curve, told
from layerscope.runs.finding import Finding
from layerscope.show.numbers import number

if TYPE_CHECKING:
    from layerscope.runs.run import Run


def sink_tokens(run: Run, known: list[Curve]) -> Finding | None:
    """Return where sinks are, how many, and whether they are in the run's means and entropies; None without any."""
    counted = {c.metric: c for c in known if c.metric in ("sink_share", "sinks")}
    curve = counted.get("sink_share") or counted.get("sinks")
    if curve is None or not np.nanmax(curve.values, initial=0.0) > 0:
        return None
    there = [layer for layer in curve.layers if curve.at(layer)[0] > 0]
    most = max(there, key=lambda layer: curve.at(layer)[0])
    value, stderr = curve.at(most)
    much = f"{told(curve, value, stderr)} of the tokens" if curve.unit == "%" else f"{number(value)} tokens of a sample"
    out = bool(run.info["options"].get("exclude_sinks"))
    text = (
        f"Sinks: {much} have more than 10 times their sample's median norm at layer {most} of {run.depth}, the most; "
        f"{len(there)} of {len(curve.layers)} layers have some. "
    )
    text += (
        "They are left out of entropies and means here."
        if out
        else "They are in the means over tokens; `exclude_sinks=True` leaves them out."
    )
    return Finding("sinks", text, {"layer": most, "value": value, "layers": len(there), "left_out": out})
