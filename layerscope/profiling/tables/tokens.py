"""Metrics of each sample's tokens, measured in the pass: their mean over the samples."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from layerscope.profiling.tables.source import Row, Source, mean
from layerscope.runs.run import is_scalar, parse_key
from layerscope.runs.states import Column


def _order(part: tuple[str, list[Tensor]]) -> tuple[str, int, str]:
    """Put whole samples, which are what a metric means by itself, before prefixes, and those by length."""
    name, variant, site = parse_key(part[0])
    whole, _, prefix = (variant or "").partition(",prefix=")
    return name, int(prefix or 0), f"{whole}.{site}"


def token_rows(source: Source) -> Iterator[Row]:
    """Yield mean and standard error of every per-sample value by layer; undefined ones are left out and counted."""
    parts: dict[str, list[Tensor]] = {}
    for shard, fine in source.original_shards():
        with source.folder.shard(shard) as file:
            for key in filter(is_scalar, file.keys()):
                parts.setdefault(key, []).append(file.get_tensor(key)[:, fine])
    for key, shards in sorted(parts.items(), key=_order):
        name, variant, site = parse_key(key)
        layers = torch.cat(shards, 1).double()
        if name == "zero_steps" and not bool(layers.any()):
            continue
        for layer, values in enumerate(layers):
            column = Column(site, layer if site == "raw" else source.run.depth)
            yield source.row(name, column, *mean(values), variant=variant)
