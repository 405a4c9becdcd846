"""Metrics that compare a sample with its augmentations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from layerscope.metrics.arrays import mean
from layerscope.metrics.factors.views import FromAllViews, FromViews, Views
from layerscope.profiling.tables.source import Numbers, Row, Source

BLOCK = 1000
"""InfoNCE and DiME compare this many samples with each other, or 256 where there are fewer."""
SMALL_BLOCK = 256
GROUPS = 5
"""Parts of a single block that are left out in turn to find its error."""


def view_rows(source: Source) -> Iterator[Row]:
    """Yield InfoNCE and DiME over seeded blocks of one size (the last partial one is left out and counted), LiDAR.

    The error is that over blocks, of a single block that of the jackknife over groups of its samples.
    """
    groups = _groups(source)
    if groups is None or len(groups) < 2:
        return
    n, total = len(groups), len(np.unique(source.sample[source.view > 0]))
    size = BLOCK if n >= BLOCK else min(n, SMALL_BLOCK)
    order = np.random.default_rng([source.options.seed, 2]).permutation(n)
    blocks = [order[i : i + size] for i in range(0, n - size + 1, size)]
    for pooling, column, _ in source.layers():
        states = source.run.states(pooling, (column,), groups.T.reshape(-1))[:]
        views = states[:, 0].view(groups.shape[1], n, -1).transpose(0, 1)
        known: Row = {"total": total, "pooling": pooling}
        for name, more, value, error in _in_blocks(source, views, blocks):
            yield source.row(name, column, value, error, size * len(blocks), variant=f"N={size}{more}", **known)
        for metric, how in source.wanted(FromAllViews):
            value = float(how.compute(views))
            yield source.row(metric.name, column, value, n=n, variant=f"q={views.shape[1]}", **known)


def _in_blocks(source: Source, views: Tensor, blocks: Sequence[Numbers]) -> Iterator[tuple[str, str, float, float]]:
    """Yield metric, end of its variant, mean and error over blocks of views `[N, views, D]`."""
    asked = [
        (metric.name, variant, compute, rough)
        for metric, how in source.wanted(FromViews)
        for variant, compute, rough in how.measured(source.options.alpha)
    ]
    values = [[float(compute(pair)) for *_, compute, _ in asked] for pair in _pairs(source, views, blocks)]
    once = len(blocks) == 1
    left_out = _jackknifed(blocks[0]) if once else []
    parts = [[float(rough(pair)) for *_, rough in asked] for pair in _pairs(source, views, left_out)]
    for i, (name, variant, _, _) in enumerate(asked):
        value, error, _ = mean(torch.tensor([found[i] for found in values]))
        yield name, variant, value, _jackknife([found[i] for found in parts]) if once else error


def _pairs(source: Source, views: Tensor, blocks: Iterable[Numbers]) -> Iterator[Views]:
    """Yield the samples and first views of each block, one at a time: what their metrics share takes memory."""
    for block in blocks:
        yield Views(views[block, 0].double(), views[block, 1].double(), source.options.seed)


def _jackknifed(block: Numbers) -> list[Numbers]:
    """Return the block without each group of its samples in turn; nothing where it is too small."""
    group = np.arange(len(block)) % GROUPS  # blocks are shuffled
    return [block[group != left_out] for left_out in range(GROUPS)] if len(block) >= 2 * GROUPS else []


def _jackknife(values: Sequence[float]) -> float:
    """Return the standard error of a metric of one block, from its values without each group.

    Source: Efron and Tibshirani 1993, An introduction to the bootstrap, section 11.5.
    """
    return float(np.sqrt((GROUPS - 1) * np.array(values).var())) if values else math.nan


def _groups(source: Source) -> Numbers | None:
    """Rows of the plan [n, 1 + views]: a sample and its views, all of them finite."""
    plan = pd.DataFrame({"row": np.arange(len(source.view)), "sample": source.sample, "view": source.view})
    plan = plan[source.fine & np.isin(source.sample, source.sample[source.view > 0])]
    if plan.empty:
        return None
    rows: Numbers = plan.pivot(index="sample", columns="view", values="row").dropna().to_numpy(dtype=np.int64)
    return rows
