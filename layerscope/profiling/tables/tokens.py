"""Metrics of each sample's tokens, measured in the pass: their mean over the samples."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from layerscope.profiling.tables.source import Row, Source, mean
from layerscope.runs.run import is_scalar, parse_key
from layerscope.runs.states import Column


def token_rows(source: Source) -> Iterator[Row]:
    """Yield mean and standard error of every per-sample value by layer; undefined ones are left out and counted."""
    parts: dict[str, list[Tensor]] = {}
    for shard, fine in source.original_shards():
        with source.folder.shard(shard) as file:
            for key in filter(is_scalar, file.keys()):
                parts.setdefault(key, []).append(file.get_tensor(key)[:, fine])
    for key, shards in sorted(parts.items()):
        name, variant, site = parse_key(key)
        layers = torch.cat(shards, 1).double()
        if name == "zero_steps" and not bool(layers.any()):
            continue
        for layer, values in zip(source.run.layers_at(site), layers, strict=True):
            yield source.row(name, Column(site, layer), *mean(values), variant=variant)
