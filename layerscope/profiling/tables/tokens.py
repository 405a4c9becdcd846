"""Metrics of each sample's tokens, measured in the pass: their mean over the samples."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from layerscope.metrics.arrays import mean
from layerscope.metrics.factors.tokens import FromTokens
from layerscope.profiling.tables.source import Row, Source
from layerscope.runs.keys import is_scalar, parse_key
from layerscope.runs.registry import measured
from layerscope.runs.states import Column


def token_rows(source: Source) -> Iterator[Row]:
    """Yield mean and standard error of every per-sample value by layer; undefined ones are left out and counted."""
    rare = {metric.name for metric, how in measured(FromTokens) if how.rare}
    for key in source.share(_keys(source)):
        name, variant, site = parse_key(key)
        layers = _values(source, key)
        if name in rare and not bool(layers.any()):
            continue
        for layer, values in zip(source.run.layers_at(site), layers, strict=True):
            yield source.row(name, Column(site, layer), *mean(values.double()), variant=variant)


def _keys(source: Source) -> list[str]:
    """Return the keys of all per-sample values: whole samples, which a metric means by itself, before prefixes."""
    for shard, _ in source.original_shards():
        with source.folder.shard(shard) as file:
            return sorted(filter(is_scalar, file.keys()), key=_order)
    return []


def _order(key: str) -> tuple[str, int, str]:
    name, variant, site = parse_key(key)
    whole, _, prefix = (variant or "").partition(",prefix=")
    return name, int(prefix or 0), f"{whole}.{site}"


def _values(source: Source, key: str) -> Tensor:
    """Return the values [layers, N] of all finite samples, float32."""
    shards = []
    for shard, fine in source.original_shards():
        with source.folder.shard(shard) as file:
            shards.append(file.get_tensor(key)[:, fine])
    return torch.cat(shards, 1)
