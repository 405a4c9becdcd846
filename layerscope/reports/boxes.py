"""From each sample's cosine to the last layer to the boxes of a box plot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from layerscope.runs.run import Run

TABLE = "samples.cosine_to_last"
WHISKERS = (5, 95)
"""Percentiles between which the whiskers reach."""
OUTLIERS = 20
"""At most this many samples beyond the whiskers of a layer are kept by name, the furthest first."""


@dataclass(frozen=True)
class Box:
    """One layer's cosines to the last layer: quartiles, whiskers, and the samples beyond them by name."""

    layer: int
    first: float
    median: float
    third: float
    low: float
    high: float
    mean: float
    n: int
    outliers: tuple[tuple[str, float], ...]


def boxes(run: Run) -> list[Box]:
    """Return a box for each layer but the last itself; empty where no pairs of layers were compared."""
    if not run.folder.has_table(TABLE):
        return []
    values = run.folder.read_table(TABLE)
    last = (values["layer"] == run.depth) & (values["site"] == run.final)
    values = values[~last & values["value"].notna()]
    names = run.folder.plan.drop_duplicates("sample").set_index("sample")["name"]
    return [_box(int(layer), rows, names) for layer, rows in values.groupby("layer", sort=True)]


def boxes_pooling(run: Run) -> str | None:
    """Return which vector of a sample the boxes are about, None where there are none."""
    if not run.folder.has_table(TABLE):
        return None
    pooling = run.folder.read_table(TABLE)["pooling"]
    return str(pooling.iloc[0]) if len(pooling) else None


def _box(layer: int, rows: pd.DataFrame, names: pd.Series) -> Box:  # type: ignore[type-arg]
    values, samples = rows["value"].to_numpy(), rows["sample"].to_numpy()
    low, first, median, third, high = (float(q) for q in np.percentile(values, (WHISKERS[0], 25, 50, 75, WHISKERS[1])))
    beyond = np.flatnonzero((values < low) | (values > high))
    furthest = beyond[np.argsort(-np.abs(values[beyond] - median), kind="stable")][:OUTLIERS]
    return Box(
        layer=layer,
        first=first,
        median=median,
        third=third,
        low=low,
        high=high,
        mean=float(values.mean()),
        n=len(values),
        outliers=tuple((str(names[samples[i]]), float(values[i])) for i in furthest),
    )
