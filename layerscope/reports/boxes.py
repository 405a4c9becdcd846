"""From each sample's cosine to the last layer to the boxes of a box plot."""

from __future__ import annotations

from dataclasses import dataclass

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
    """Return a box for each layer below the last, at `raw`; empty where no pairs of layers were compared."""
    if not run.folder.has_table(TABLE):
        return []
    values = run.folder.read_table(TABLE)
    last = (values["layer"] == run.depth) & (values["site"] == run.final)
    values = values[~last & values["value"].notna()]
    names = run.folder.plan.drop_duplicates("sample").set_index("sample")["name"]
    layers = values.groupby(["layer", "site"], sort=True)
    return [_box(layer, site, rows, names) for (layer, site), rows in layers]


def _box(layer: int, site: str, rows: pd.DataFrame, names: pd.Series) -> Box:  # type: ignore[type-arg]
    values = rows["value"]
    first, median, third = (float(values.quantile(q)) for q in (0.25, 0.5, 0.75))
    reach = WHISKER * (third - first)
    inside = values[(values >= first - reach) & (values <= third + reach)]
    beyond = rows.drop(index=inside.index)
    furthest = (beyond["value"] - median).abs().nlargest(OUTLIERS).index
    return Box(
        int(layer),
        str(site),
        first,
        median,
        third,
        float(inside.min()),
        float(inside.max()),
        float(values.mean()),
        len(values),
        tuple((str(names[row["sample"]]), float(row["value"])) for _, row in beyond.loc[furthest].iterrows()),
    )
