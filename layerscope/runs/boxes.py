"""From each sample's cosine to the last layer to the boxes of a box plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from layerscope.show.plain import plain, pooling_name
from layerscope.show.plots import Box, Boxes

if TYPE_CHECKING:
    from layerscope.runs.run import Run

TABLE = "samples.cosine_to_last"
WHISKERS = (5, 95)
"""Percentiles between which the whiskers reach."""
OUTLIERS = 20
"""At most this many samples beyond the whiskers of a layer are kept by name, the furthest first."""


def box_plot(run: Run) -> Boxes | None:
    """Return a box for each layer but the last itself, None where no pairs of layers were compared."""
    if not run.folder.has_table(TABLE):
        return None
    table = run.folder.read_table(TABLE)
    last = (table["layer"] == run.depth) & (table["site"] == run.final)
    values = table[~last & table["value"].notna()]
    if values.empty:
        return None
    names = run.folder.plan.drop_duplicates("sample").set_index("sample")["name"]
    pooling = pooling_name(str(table["pooling"].iloc[0]))
    low, high = WHISKERS
    return Boxes(
        title="Each sample's cosine to the last layer",
        summary="Boxes by layer: quartiles of each sample's cosine to the last layer, whiskers from "
        f"{low} to {high} %, dots for the samples furthest beyond them.",
        choice=pooling,
        name="cosine_to_last",
        x="layer",
        y="cosine",
        boxes=tuple(_box(int(layer), rows, names) for layer, rows in values.groupby("layer", sort=True)),
        each="sample",
        legend=("median of the samples", "quarter to three quarters", f"{low} % to {high} %"),
    )


def _box(layer: int, rows: pd.DataFrame, names: pd.Series) -> Box:  # type: ignore[type-arg]
    values, samples = rows["value"].to_numpy(), rows["sample"].to_numpy()
    low, first, median, third, high = (float(q) for q in np.percentile(values, (WHISKERS[0], 25, 50, 75, WHISKERS[1])))
    beyond = np.flatnonzero((values < low) | (values > high))
    furthest = beyond[np.argsort(-np.abs(values[beyond] - median), kind="stable")][:OUTLIERS]
    called = names.loc[samples[furthest]]
    outliers = tuple((plain(str(name)), float(value)) for name, value in zip(called, values[furthest], strict=True))
    return Box(str(layer), (first, median, third), (low, high), float(values.mean()), len(values), outliers)
