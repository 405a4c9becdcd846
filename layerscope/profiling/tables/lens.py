"""What each layer predicts through the model's own head."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from layerscope import metrics
from layerscope.profiling.tables.source import Row, Source, mean
from layerscope.runs.states import Column


def lens_rows(source: Source) -> Iterator[Row]:
    """Yield accuracy and perplexity by layer where the answers are known, and where predictions stop changing."""
    if not source.is_ours:  # one block
        return
    found = _lens_columns(source)
    if "prediction" not in found or not found["prediction"].shape[1]:
        return
    prediction, n = found["prediction"], int(found["drawn"].sum())
    columns = [Column(source.run.final, layer) for layer in range(source.run.depth + 1)]
    if "target" in found:
        for column, hits in zip(columns, (prediction == found["target"]).double(), strict=True):
            yield source.row("layer_accuracy", column, *mean(hits), total=n)
    if source.run.info["model"]["language_model"] and "nll" in found:
        for column, losses in zip(columns, found["nll"].double(), strict=True):
            finite = losses[torch.isfinite(losses)]
            value = float(metrics.perplexity(finite)) if len(finite) else math.nan
            yield source.row("perplexity", column, value, value * mean(finite)[1], len(finite), total=n)
    first = metrics.saturation_layer(prediction[1:].T)
    yield source.row("saturation_layer", columns[-1], *mean(first.double()), total=n)
    for column in columns[1:]:
        yield source.row("saturated", column, *mean((first <= column.layer).double()), total=n)


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
