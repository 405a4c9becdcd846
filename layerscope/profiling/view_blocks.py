"""InfoNCE, DiME and LiDAR: how close a layer keeps a sample and its augmented views.

InfoNCE and DiME grow with the number of samples that are compared with each other, so values of
different runs can be compared only where that number is the same. They are means over blocks of
equal size, which the table names. Of 2,300 samples with views there are two blocks of 1,000, drawn
by the seed; the other 300 are left out and counted. The standard error is that over the blocks.

A single block has no spread to find an error by. It is computed again without each fifth of its
samples in turn (the jackknife), in a rough form where a metric has one.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from layerscope.metrics.arrays import mean
from layerscope.metrics.factors import FromAllViews, FromViews, Views
from layerscope.profiling.source import Numbers, Row, Source
from layerscope.runs.states import Column

BLOCK = 1000
SMALL_BLOCK = 256
"""Samples of a block where there are fewer than `BLOCK`."""
GROUPS = 5
"""Parts of a single block that are left out in turn to find its error."""


def view_rows(source: Source, item: tuple[str, Column]) -> Iterator[Row]:
    """Yield a layer's InfoNCE and DiME over blocks of equal size, and its LiDAR."""
    pooling, column = item
    rows = _rows_of_views(source)
    count, views = rows.shape
    if count < 2:
        return
    by_view = rows.T.reshape(-1)
    flat = source.run.states(pooling, (column,), by_view)[:][:, 0]
    states = flat.view(views, count, -1).transpose(0, 1)
    blocks = _blocks(count, source.options.seed)
    used = sum(map(len, blocks))
    errors = defaultdict(list)
    if len(blocks) == 1:
        errors = _values(source, states, _jackknifed(blocks[0]), is_rough=True)

    total = len(np.unique(source.sample[source.view > 0]))
    cells: Row = {"total": total, "pooling": pooling}
    for (name, variant), values in _values(source, states, blocks).items():
        value, error, _ = mean(torch.tensor(values))
        if len(blocks) == 1:
            error = _jackknife(errors[name, variant])
        cells |= {"n": used, "variant": f"N={len(blocks[0])}{variant}"}
        yield source.row(name, column, value, error, **cells)
    for metric, how in source.wanted(FromAllViews):
        value = float(how.compute(states))
        cells |= {"n": count, "variant": f"q={views}"}
        yield source.row(metric.name, column, value, **cells)


def _rows_of_views(source: Source) -> Numbers:
    """Return the rows of the plan `[samples, views]` of every sample whose views are all finite.

    Its first view is the sample itself.
    """
    plan = source.folder.plan[["sample", "view"]].reset_index(names="row")
    viewed = plan["sample"].isin(plan.loc[plan["view"] > 0, "sample"])
    finite = plan[viewed & source.fine]
    rows = finite.pivot(index="sample", columns="view", values="row").dropna()
    numbers: Numbers = rows.to_numpy(dtype=np.int64)
    return numbers


def _blocks(count: int, seed: int) -> list[Numbers]:
    """Return the samples of each block; what the last one would hold in part is left out.

    >>> [len(block) for block in _blocks(2300, seed=0)], [len(block) for block in _blocks(700, seed=0)]
    ([1000, 1000], [256, 256])
    """
    size = BLOCK
    if count < BLOCK:
        size = min(count, SMALL_BLOCK)
    order = np.random.default_rng([seed, 2]).permutation(count)
    return [*order[: count - count % size].reshape(-1, size)]


def _values(
    source: Source, states: Tensor, blocks: Iterable[Numbers], is_rough: bool = False
) -> defaultdict[tuple[str, str], list[float]]:
    """Return the values of all blocks of states `[N, views, D]`.

    They are by metric and what its variant adds to the size of the block, such as `,alpha=1`.
    """
    values = defaultdict(list)
    orders = source.options.alpha
    seed = source.options.seed
    for block in blocks:
        # one at a time: what its metrics share takes memory
        first = states[block, 0].double()
        second = states[block, 1].double()
        views = Views(first, second, seed)
        for metric, how in source.wanted(FromViews):
            for variant, value in how.measured(views, orders, is_rough):
                values[metric.name, variant].append(value)
    return values


def _jackknifed(block: Numbers) -> Iterator[Numbers]:
    """Yield a block without each group of its samples in turn; nothing where it is too small for that.

    >>> [part.tolist() for part in _jackknifed(np.arange(10))][:2]
    [[1, 2, 3, 4, 6, 7, 8, 9], [0, 2, 3, 4, 5, 7, 8, 9]]
    """
    if len(block) < 2 * GROUPS:
        return
    group = np.arange(len(block)) % GROUPS  # blocks are shuffled
    for left_out in range(GROUPS):
        yield block[group != left_out]


def _jackknife(values: list[float]) -> float:
    """Return the error of one block, from its values without each group.

    With g groups that is √((g − 1) / g · Σ (v − mean)²). NaN without values.

    Source: Efron and Tibshirani 1993, section 11.5.
    """
    if not values:
        return math.nan
    spread = np.array(values).var()
    return float(np.sqrt((GROUPS - 1) * spread))
