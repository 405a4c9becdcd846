"""From each sample's cosine to the last layer to the boxes of a box plot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from layerscope.runs.run import Run

TABLE = "samples.cosine_to_last"
WHISKER = 1.5
"""Whiskers reach the furthest value within so many interquartile ranges of the box (Tukey)."""
OUTLIERS = 20
"""At most this many samples beyond the whiskers of a layer are kept, the furthest first."""


@dataclass(frozen=True)
class Box:
    """One layer's cosines to the last layer: quartiles, whiskers, and the samples beyond them by name."""

    layer: int
    site: str
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
    layers = values.groupby(["layer", "site"], sort=True)
    return [_box(int(layer), str(site), rows, names) for (layer, site), rows in layers]


def _box(layer: int, site: str, rows: pd.DataFrame, names: pd.Series) -> Box:  # type: ignore[type-arg]
    values, samples = rows["value"].to_numpy(), rows["sample"].to_numpy()
    first, median, third = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75)))
    reach = WHISKER * (third - first)
    inside = (values >= first - reach) & (values <= third + reach)
    beyond = np.flatnonzero(~inside)
    furthest = beyond[np.argsort(-np.abs(values[beyond] - median), kind="stable")][:OUTLIERS]
    return Box(
        layer=layer,
        site=site,
        first=first,
        median=median,
        third=third,
        low=float(values[inside].min()),
        high=float(values[inside].max()),
        mean=float(values.mean()),
        n=len(values),
        outliers=tuple((str(names[samples[i]]), float(values[i])) for i in furthest),
    )
