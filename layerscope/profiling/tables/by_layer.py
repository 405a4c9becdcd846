"""Metrics of one layer by itself: of each sample's tokens, of the pooled states, and of what the head predicts."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from layerscope.metrics.arrays import mean
from layerscope.metrics.factors.readings import FromReadings, Readings
from layerscope.metrics.factors.rows import FromRows, StoredRows
from layerscope.metrics.factors.tokens import FromTokens
from layerscope.profiling.tables.source import Row, Source
from layerscope.runs.registry import is_scalar, measured, parse_key
from layerscope.runs.states import Column


def token_rows(source: Source) -> Iterator[Row]:
    """Yield mean and standard error of every per-sample value by layer; undefined ones are left out and counted."""
    rare = {metric.name for metric, how in measured(FromTokens) if how.rare}
    with source.folder.shard(next(source.original_shards())[0]) as file:
        keys = sorted(filter(is_scalar, file.keys()), key=_order)
    for key in source.share(keys):
        name, variant, site = parse_key(key)
        parts = []
        for shard, fine in source.original_shards():
            with source.folder.shard(shard) as file:
                parts.append(file.get_tensor(key)[:, fine])
        layers = torch.cat(parts, 1)
        if name in rare and not bool(layers.any()):
            continue
        for layer, values in zip(source.run.layers_at(site), layers, strict=True):
            yield source.row(name, Column(site, layer), *mean(values.double()), variant=variant)


def _order(key: str) -> tuple[str, int, str]:
    """Return what sorts keys: whole samples, which a metric means by itself, before prefixes."""
    name, variant, site = parse_key(key)
    whole, _, prefix = (variant or "").partition(",prefix=")
    return name, int(prefix or 0), f"{whole}.{site}"


def pooled_rows(source: Source) -> Iterator[Row]:
    """Yield every metric of the pooled states by layer; those that are not defined for so few samples are left out."""
    for pooling, column, states in source.layers():
        rows = StoredRows(states)
        for metric, how in source.wanted(FromRows):
            if how.lack(rows.count, rows.width) is None:
                for variant, value in how.measured(rows, source.options.alpha):
                    yield source.row(metric.name, column, value, variant=variant, pooling=pooling)


def lens_rows(source: Source) -> Iterator[Row]:
    """Yield accuracy and perplexity by layer where the answers are known, and where predictions stop changing."""
    found = _lens_columns(source) if source.is_ours else {}  # one block
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
                parts.setdefault(key.removeprefix("lens."), []).append(file.get_tensor(key)[..., kept])
    return {key: torch.cat(shards, -1) for key, shards in parts.items()}
