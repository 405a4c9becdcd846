"""The plots of a comparison: layers of one run by layers of another, differences by depth, layers by checkpoints."""

import math

import numpy as np
import pandas as pd

from layerscope.comparison.findings import Pair, headline, largest, most_alike, signed
from layerscope.runs.registry import (
    about,
    capital,
    file_name,
    meaning_of,
    named,
    scale,
    unit_apart,
)
from layerscope.show.plots import Axis, Chart, HeatMap, Meaning, Series

RINGS = "○ the layer across that is most like the one down; layer 0 is not a candidate."
LEAST = 0.05
"""The smallest range of similarities that a scale of colours spans."""
DIFFERENCE = Meaning(
    "The metric of the run named first less that of the other, at the same layer, or where depths differ at the layers "
    "nearest to each other in percent of depth. Bands are one standard error: of the mean difference by sample where "
    "both runs keep each sample's values, else of two independent values.",
    "Above 0: the run named first has more of it. Whether high or low is better differs by metric, model and data.",
    "measured here",
)


def square_map(pair: Pair, metric: str, variant: str) -> HeatMap:
    """Return the similarity of every layer of A with every one of B; the most similar of B is ringed."""
    square = pair.square(metric, variant)
    rings = most_alike(square, metric)
    # all pairs share a scale
    of_all = pair.comparison.table("similarity")
    of_form = of_all[(of_all["metric"] == metric) & (of_all["variant"] == variant)]
    low, high = of_form["value"].min(), of_form["value"].max()
    return HeatMap(
        title=f"{capital(named(metric, variant))} of layers across runs",
        summary=headline(pair),
        about=meaning_of(metric),
        note=RINGS
        if math.isfinite(low)
        else f"the states of {pair.b.name} do not vary",
        name=f"compared_{file_name(metric, variant)}",
        rows=tuple(map(str, square.index)),
        columns=tuple(map(str, square.columns)),
        values=tuple(map(tuple, square.to_numpy().tolist())),
        low=float(low) if math.isfinite(low) else None,
        high=float(high) if math.isfinite(high) else None,
        least=LEAST,
        down=f"layer of {pair.a.name}",
        across=f"layer of {pair.b.name}",
        rings=tuple(rings),
        square=True,
        upward=True,
        reversed=about(metric).low,
    )


def difference_chart(pair: Pair, metric: str, title: str, rows: pd.DataFrame) -> Chart:
    """Return how much a metric differs by the layers of the deeper run."""
    depth = max(pair.a.depth, pair.b.depth)
    layers = "layer" if pair.a.depth == depth else "layer_b"
    points = rows[rows["value"].notna()].reset_index(drop=True)
    after = tuple(np.flatnonzero(points[layers].duplicated()).tolist())
    most = largest(points.drop([*after]))
    facts = [f"{pair.b.name} less {pair.a.name}", f"N: {points['n'].max():,}"]
    if points["paired"].all():
        facts.insert(1, "paired by sample")
    line = Series.of(
        points,
        layers,
        "value",
        error="stderr",
        marked=() if most is None else (most,),
        after=after,
        note=" · ".join(facts),
    )
    zero = Series("", (0.0, float(depth)), (0.0, 0.0), mark="guide", tone="muted")
    unit, last = unit_apart(metric), scale(metric) * points["value"].iloc[-1]
    return Chart(
        title=f"{title}: difference",
        summary=f"{signed(last)} {unit} at the last layer",
        about=DIFFERENCE,
        unit=unit,
        name=f"difference-{metric}",
        sheet="differences",
        x=Axis("layer", whole=True, depth=depth),
        y=Axis("", scale=scale(metric)),
        series=(zero, line),
        overlaid=True,
        marked="the largest difference",
    )


def checkpoint_map(metric: str, title: str, values: pd.DataFrame) -> HeatMap:
    """Return a map of layers by checkpoints."""
    entry, numbers = about(metric), values.to_numpy(dtype=np.float64)
    finite = numbers[np.isfinite(numbers)]
    return HeatMap(
        title=title,
        summary=f"A heat map of layers by checkpoints. {entry.meaning}",
        about=meaning_of(metric),
        unit=entry.unit,
        note="" if len(finite) else "no value: the states do not vary",
        name=f"checkpoints_{metric}",
        sheet="checkpoints",
        rows=tuple(map(str, values.index)),
        columns=tuple(values),
        values=tuple(map(tuple, numbers.tolist())),
        low=None,
        high=None,
        least=LEAST * float(np.abs(finite).max(initial=0.0)),
        across="checkpoint",
        down="layer",
        log=entry.log and bool((finite > 0).all()),
        reversed=entry.log,
        upward=True,
    )
