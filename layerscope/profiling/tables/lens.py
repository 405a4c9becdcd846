"""What each layer predicts through the model's own head."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from layerscope.metrics.factors.readings import FromReadings, Readings
from layerscope.profiling.tables.source import Row, Source
from layerscope.runs.states import Column


def lens_rows(source: Source) -> Iterator[Row]:
    """Yield accuracy and perplexity by layer where the answers are known, and where predictions stop changing."""
    if not source.is_ours:  # one block
        return
    found = _lens_columns(source)
    if "prediction" not in found or not found["prediction"].shape[1]:
        return
    nll = found.get("nll") if source.run.info["model"]["language_model"] else None
    readings = Readings(found["prediction"], found.get("target"), nll)
    for metric, how in source.wanted(FromReadings):
        for layer, estimate in how.compute(readings) if how.compute else ():
            column = Column(source.run.final, layer)
            yield source.row(metric.name, column, *estimate, total=int(found["drawn"].sum()))


def _lens_columns(source: Source) -> dict[str, Tensor]:
    """Predictions [L+1, n], targets [n] and losses [L+1, n] of the finite samples, and how many were `drawn`."""
    parts: dict[str, list[Tensor]] = {}
    for shard, fine in source.original_shards():
        with source.folder.shard(shard) as file:
            keys = [key for key in file.keys() if key.startswith("lens.")]  # noqa: SIM118
            kept = torch.from_numpy(fine)
            if "lens.row" in keys:
                kept = kept[file.get_tensor("lens.row").long()]
            if keys:
                parts.setdefault("drawn", []).append(torch.tensor([len(kept)]))
            for key in keys:
                values = file.get_tensor(key)
                parts.setdefault(key.removeprefix("lens."), []).append(values[..., kept])
    return {key: torch.cat(shards, -1) for key, shards in parts.items()}
