"""What one run holds of each metric: its values by layer, and those of each sample where they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from layerscope.comparison.matching import Side
from layerscope.runs.registry import about, is_scalar, parse_key
from layerscope.runs.states import Column

Key = tuple[str, str | None]
"""Metric and variant."""
Values = npt.NDArray[np.floating[Any]]
KEPT = {"cosine_similarity": "cosine_to_last"}
"""What each sample's values are called where that is not the metric's own name."""


@dataclass(frozen=True)
class Measured:
    """A metric of one run: a row of its table for each layer, the last layer after the norm among them."""

    pooling: str | None
    site: str
    rows: dict[Column, dict[str, Any]]


def measured(sides: Sequence[Side], pooling: str | None) -> list[dict[Key, Measured]]:
    """Return of each run every metric that has values by layer; of similarities between layers that to the last one.

    Where no `pooling` was chosen, metrics whose values by sample are kept of one pooling are taken of it, if all runs
    keep the same.
    """
    kept = {[*side.run.info["pair_pooling"], *side.run.info["pooling"]][0] for side in sides}
    common = kept.pop() if pooling is None and len(kept) == 1 else None
    return [_measured(side, common) for side in sides]


def _measured(side: Side, kept: str | None) -> dict[Key, Measured]:
    table, run = side.run.at(), side.run
    to_last = (table["layer_b"] == run.depth) & (table["site_b"] == run.final)
    table = table[table["layer_b"].isna() | to_last.fillna(False)]
    found: dict[Key, Measured] = {}
    for (metric, variant), rows in table.groupby(["metric", "variant"], sort=False, dropna=False):
        known = [str(name) for name in rows["pooling"].dropna().unique()]
        # the side's pooling, else the first of this metric: one token has similarities too
        pooling = side.pooling if side.pooling in known else known[0] if known else None
        pooling = kept if metric in KEPT and kept in known else pooling
        rows = rows[rows["pooling"] == pooling] if pooling else rows[rows["pooling"].isna()]
        site = next((name for name in ("raw", run.final) if name in set(rows["site"])), None)
        rows = rows[rows["site"].isin((site, run.final)) & rows["value"].notna()]
        rows = rows[(rows["site"] == site) | (rows["layer"] == run.depth)]
        # one number for all layers is no curve, and of another depth no number to subtract
        least = 1 if about(str(metric)).curve else 2
        if site is None or len(rows) < least:
            continue
        by_column = {Column(row["site"], int(row["layer"])): row for row in rows.to_dict(orient="records")}
        found[str(metric), _text(variant)] = Measured(pooling, site, by_column)
    return found


class PerSample:
    """The per-sample values of one run, in the order of its common samples; read once."""

    def __init__(self, side: Side) -> None:
        self._values: dict[tuple[str, str | None, str | None], dict[Column, Values]] = {}
        self._read_shards(side)
        self._read_tables(side)

    def of(self, key: Key, entry: Measured, column: Column) -> Values | None:
        """Return a metric's values [N] at a layer, NaN where one is not defined; None where they are not kept."""
        metric, variant = key
        return self._values.get((KEPT.get(metric, metric), variant, entry.pooling), {}).get(column)

    def _read_shards(self, side: Side) -> None:
        folder, wholes = side.run.folder, dict[str, Values]()
        index = np.full(len(folder.plan), -1)
        index[side.rows] = np.arange(len(side.rows))
        for shard in folder.shards:
            into = index[folder.rows(shard).index.to_numpy()]
            if not (into >= 0).any():
                continue
            with folder.shard(shard) as file:
                for key in filter(is_scalar, file.keys()):
                    values = file.get_tensor(key).numpy()
                    if key not in wholes:
                        wholes[key] = np.full((len(values), len(side.rows)), np.nan, dtype=np.float32)
                    wholes[key][:, into[into >= 0]] = values[:, into >= 0]
        for key, whole in wholes.items():
            metric, variant, site = parse_key(key)
            columns = [Column(site, layer) for layer in side.run.layers_at(site)]
            self._values.setdefault((metric, variant, None), {}).update(zip(columns, whole, strict=True))

    def _read_tables(self, side: Side) -> None:
        """Read what is kept by sample beside the shards."""
        folder = side.run.folder
        order = folder.plan["sample"].to_numpy()[side.rows]
        for name in filter(lambda name: name.startswith("samples."), folder.tables()):
            groups = folder.read_table(name).groupby(["metric", "variant", "pooling", "site", "layer"], dropna=False)
            for (metric, variant, pooling, site, layer), rows in groups:
                values = rows.set_index("sample")["value"].reindex(order).to_numpy(dtype=np.float64)
                self._values.setdefault((metric, _text(variant), pooling), {})[Column(site, int(layer))] = values


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
