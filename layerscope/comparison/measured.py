"""What one run says of each metric: its values by layer, and those of each sample where they are kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from layerscope.comparison.matching import Side
from layerscope.runs.keys import is_scalar, parse_key
from layerscope.runs.registry import about
from layerscope.runs.states import Column

Key = tuple[str, str | None]
"""Metric and variant."""
Values = npt.NDArray[np.float64]
KEPT = {"cosine_similarity": "cosine_to_last"}
"""What each sample's values are called where that is not the metric's own name."""


@dataclass(frozen=True)
class Measured:
    """A metric of one run: a row of the long frame for each layer, the last layer after the norm among them."""

    key: Key
    pooling: str | None
    site: str
    rows: dict[Column, dict[str, Any]] = field(repr=False)

    @property
    def metric(self) -> str:
        """Its name."""
        return self.key[0]


def kept_pooling(sides: Iterable[Side]) -> str | None:
    """Return the pooling of which every run keeps each sample's cosine to the last layer, if it is one for all."""
    kept = {[*side.run.info["pair_pooling"], *side.run.info["pooling"]][0] for side in sides}
    return kept.pop() if len(kept) == 1 else None


def measured(side: Side, kept: str | None = None) -> dict[Key, Measured]:
    """Return every metric of a run that has values by layer; of similarities between layers that to the last one.

    Metrics whose values by sample are kept of one pooling alone are taken of `kept`, where it is there.
    """
    table, run = side.run.at(), side.run
    to_last = (table["layer_b"] == run.depth) & (table["site_b"] == run.final)
    table = table[table["layer_b"].isna() | to_last.fillna(False)]
    found: dict[Key, Measured] = {}
    for (metric, variant), rows in table.groupby(["metric", "variant"], sort=False, dropna=False):
        pooling = kept if metric in KEPT and kept in set(rows["pooling"]) else _pooling(rows, side)
        rows = rows[rows["pooling"] == pooling] if pooling else rows[rows["pooling"].isna()]
        sites = set(rows["site"])
        site = next((name for name in ("raw", run.final) if name in sites), None)
        rows = rows[rows["site"].isin((site, run.final)) & rows["value"].notna()]
        rows = rows[(rows["site"] == site) | (rows["layer"] == run.depth)]
        if site is None or (len(rows) < 2 and about(str(metric)).name in ONE_NUMBER) or not len(rows):
            continue
        by_column = {Column(row["site"], int(row["layer"])): row for row in rows.to_dict(orient="records")}
        key = (str(metric), variant if isinstance(variant, str) else None)
        found[key] = Measured(key, pooling, site, by_column)
    return found


ONE_NUMBER = ("saturation_layer", "effective_depth")
"""One number for all layers: no curve, and of another depth no number to subtract."""


def _pooling(rows: pd.DataFrame, side: Side) -> str | None:
    """Return the pooling that is compared: the side's, else the first of this metric (one token's similarities)."""
    known = [str(name) for name in rows["pooling"].dropna().unique()]
    return side.pooling if side.pooling in known else known[0] if known else None


class PerSample:
    """The per-sample values of one run, in the order of its common samples; read once."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self._kept = self._tables()
        self._scalars = self._read()

    def of(self, entry: Measured, column: Column) -> Values | None:
        """Return a metric's values [N] at a layer, NaN where one is not defined; None where they are not kept."""
        kept = self._kept.get((KEPT.get(entry.metric, entry.metric), entry.key[1], entry.pooling))
        if kept is not None:
            return kept.get(column)
        values = self._scalars.get((*entry.key, column.site))
        if values is None:
            return None
        layers = self.side.run.layers_at(column.site)
        return values[layers.index(column.layer)].double().numpy() if column.layer in layers else None

    def _read(self) -> dict[tuple[str, str | None, str], Tensor]:
        folder = self.side.run.folder
        parts: dict[str, Tensor] = {}
        place = np.full(len(folder.plan), -1)
        place[self.side.rows] = np.arange(len(self.side.rows))
        for shard in folder.shards:
            places = place[folder.rows(shard).index.to_numpy()]
            kept = torch.from_numpy(places >= 0)
            if not bool(kept.any()):
                continue
            with folder.shard(shard) as file:
                for key in filter(is_scalar, file.keys()):
                    values = file.get_tensor(key)
                    whole = parts.setdefault(key, torch.full((len(values), len(self.side.rows)), torch.nan))
                    whole[:, torch.from_numpy(places)[kept]] = values[:, kept].to(whole.dtype)
        return {parse_key(key): values for key, values in parts.items()}

    def _tables(self) -> dict[tuple[str, str | None, str | None], dict[Column, Values]]:
        """Return what is kept by sample beside the shards, by metric, variant and pooling."""
        folder = self.side.run.folder
        order = folder.plan["sample"].to_numpy()[self.side.rows]
        found: dict[tuple[str, str | None, str | None], dict[Column, Values]] = {}
        for name in folder.tables():
            if not name.startswith("samples."):
                continue
            table = folder.read_table(name)
            keys = ["metric", "variant", "pooling", "site", "layer"]
            for (metric, variant, pooling, site, layer), rows in table.groupby(keys, dropna=False):
                values = rows.set_index("sample")["value"].reindex(order).to_numpy(dtype=np.float64)
                key = (str(metric), variant if isinstance(variant, str) else None, pooling)
                found.setdefault(key, {})[Column(site, int(layer))] = values
        return found
