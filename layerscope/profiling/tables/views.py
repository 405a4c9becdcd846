"""Metrics that compare a sample with its augmentations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch

from layerscope import metrics
from layerscope.profiling.tables.source import Numbers, Row, Source, mean

BLOCK = 1000
"""InfoNCE and DiME compare this many samples with each other, or 256 where there are fewer."""
SMALL_BLOCK = 256
GROUPS = 5
"""Parts of a single block that are left out in turn to find its error."""

Paired = Callable[..., Any]


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
        for name, variant, metric in _paired(source):
            value, error, _ = mean(torch.tensor([metric(views[b, 0], views[b, 1]) for b in blocks]))
            if len(blocks) == 1:
                once = partial(metric, permutations=1) if name == "dime" else metric  # ten are for the value
                error = _jackknife(once, views[blocks[0]])
            used, told = size * len(blocks), f"N={size}{variant}"
            yield source.row(name, column, value, error, used, total=total, variant=told, pooling=pooling)
        if source.wants("lidar"):
            value, told = float(metrics.lidar(views)), f"q={views.shape[1]}"
            yield source.row("lidar", column, value, n=n, total=total, variant=told, pooling=pooling)


def _jackknife(metric: Paired, views: torch.Tensor) -> float:
    """Return the standard error of a metric of one block [N, views, D]: a group of its samples left out in turn.

    Source: Efron and Tibshirani 1993, An introduction to the bootstrap, section 11.5.
    """
    group = np.arange(len(views)) % GROUPS  # blocks are shuffled
    if len(views) < 2 * GROUPS:
        return math.nan
    kept = (views[group != left_out] for left_out in range(GROUPS))
    values = np.array([float(metric(some[:, 0], some[:, 1])) for some in kept])
    return float(np.sqrt((GROUPS - 1) * values.var()))


def _paired(source: Source) -> Iterator[tuple[str, str, Paired]]:
    """The metrics of a sample and its first view, each with its variant."""
    if source.wants("infonce"):
        yield "infonce", "", metrics.infonce
    if source.wants("infonce_bound"):
        yield "infonce_bound", "", metrics.infonce_bound
    for alpha in source.options.alpha if source.wants("dime") else ():
        yield "dime", f",alpha={alpha:g}", partial(metrics.dime, alpha=alpha, seed=source.options.seed)


def _groups(source: Source) -> Numbers | None:
    """Rows of the plan [n, 1 + views]: a sample and its views, all of them finite."""
    plan = pd.DataFrame({"row": np.arange(len(source.view)), "sample": source.sample, "view": source.view})
    plan = plan[source.fine & np.isin(source.sample, source.sample[source.view > 0])]
    if plan.empty:
        return None
    rows: Numbers = plan.pivot(index="sample", columns="view", values="row").dropna().to_numpy(dtype=np.int64)
    return rows
