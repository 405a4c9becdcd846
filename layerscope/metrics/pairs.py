"""What similarities of every two layers share: each layer is prepared once for all its pairs.

A similarity is a `Measure` in two steps. What costs much is done once a layer, as the singular
vectors of its rows; what is left for a pair is little, as a product of two of them. Of 13 layers
that is 13 preparations and 91 comparisons.

Prepared layers are held up to `HELD_BYTES`. Where three of 13 fit, layers 0 to 2 are held while all
others pass by, each prepared for the three; then 3 to 5 are held, and so on:

    held 0 1 2    passing 3 4 … 12
    held 3 4 5    passing 6 7 … 12

Measures that need no whole layer, as linear CKA and cosines, read blocks of samples instead.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, wraps
from inspect import signature
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from layerscope.core import LayerscopeError, choices
from layerscope.metrics import blocks
from layerscope.metrics.arrays import Array, as_pair64, check_choice
from layerscope.metrics.blocks import Blocks, States, opened
from layerscope.metrics.metric import How, records

Prepared = tuple[Tensor, ...]
Numbers = np.ndarray[Any, Any]
Found = tuple[Tensor, Tensor, Tensor]
HELD_BYTES = 2**30
"""Prepared layers held at a time: at least one, however large it is."""
MOST = 4096
"""A similarity that holds whole layers at a time takes at most this many samples of the plan, evenly spaced."""


class Measure(NamedTuple):
    """A similarity in two steps, so that the work on a layer is done once for all its pairs."""

    name: str
    least: int
    """The fewest samples with which it is defined."""
    prepare: Callable[[Tensor], Prepared]
    """Returns what comparisons need of finite float64 rows `[..., N, D]`."""
    between: Callable[[Any, Any], Tensor]
    """Returns the similarity `[...]` of two prepared layers, or one value a sample `[..., N]`."""
    symmetric: bool = True
    widths: str | None = None
    """What to do where widths differ, if they must not."""


def of_pair(measure: Measure, X: Array, Y: Array) -> Tensor:
    """Return the measure of two arrays `[..., N, D]` and `[..., N, D']` of the same samples."""
    first, second = as_pair64(X, Y, ("X", "Y"), measure.widths)
    check_count(measure.name, first.shape[-2], measure.least)
    return measure.between(measure.prepare(first), measure.prepare(second))


def check_count(name: str, count: int, least: int) -> None:
    """Raise `LayerscopeError` for fewer rows than a measure needs."""
    if count < least:
        raise LayerscopeError(
            f"{name} over {count} rows is not defined: give at least {least} samples"
        )


def narrow(rows: Tensor) -> Tensor:
    """Return rows `[..., N, min(N, D)]` with the inner products of `rows` `[..., N, D]`.

    What knows rows by their inner products alone is cheaper to compute of these.

    >>> wide = torch.arange(12.0).view(2, 6)
    >>> narrow(wide).shape, torch.allclose(narrow(wide) @ narrow(wide).mT, wide @ wide.mT)
    (torch.Size([2, 2]), True)
    """
    if rows.shape[-1] <= rows.shape[-2]:
        return rows
    factor: Tensor = torch.linalg.qr(rows.mT, mode="r").R.mT
    return factor


class Choice(NamedTuple):
    """An option that chooses among forms of a measure: its name, the argument it stands for, and the values."""

    option: str
    argument: str
    values: Mapping[str, Any]


CENTERING = Choice("cosine", "center", {"centered": True, "uncentered": False})
DEBIASING = Choice("cka", "debiased", {"debiased": True, "biased": False})


@dataclass(frozen=True)
class FromPath(How):
    """A metric of the way that one sample's vector takes from layer to layer."""

    needs = "path"
    compute: Callable[[Tensor], Tensor]
    """Takes states `[n, L+1, D]`; returns values `[n, L]` from layer 1 on, NaN where there is none."""

    def measured(self, states: States) -> Tensor:
        """Return the values `[N, L]` of every sample."""
        blocks, _ = opened(states, None, center=False)
        return torch.cat([self.compute(rows.transpose(0, 1)) for rows in blocks])


@dataclass(frozen=True)
class FromPairs(How):
    """A similarity of every two layers, and how a run and a comparison take it."""

    needs = "pairs"
    compute: Callable[..., Tensor | Found]
    """Takes `states`, `others` and options; returns `[L, L']` as `similarity_matrix` does, and where each sample has a
    value its standard error and number as well."""
    variant: str
    """What the choices made here are called in a run's table, {} being the one of `choice`."""
    choice: Choice | None = None
    least: int = 2
    """The fewest samples with which it is defined."""
    features: bool = False
    """Whether it fits a linear map: near 1 for noise unless there are far more samples than features."""
    all_samples: bool = False
    one_width: bool = False
    """Whether it compares vectors, not geometries, so that both layers need the same number of features."""

    def forms(self, options: Any) -> "Iterator[FromPairs]":
        """Yield the measure in each form that the options ask for."""
        if self.choice is None:
            yield self
            return
        for name in getattr(options, self.choice.option):
            arguments = {self.choice.argument: self.choice.values[name]}
            compute = partial(self.compute, **arguments)
            variant = self.variant.format(name)
            yield replace(self, compute=compute, variant=variant, choice=None)

    def rows(self, rows: Numbers) -> Numbers:
        """Return the rows that it reads: all, or `MOST` of them, evenly spaced.

        >>> from layerscope.metrics.rsa import RSA
        >>> RSA.how.rows(np.arange(8192))[:3]
        array([0, 2, 4])
        """
        if self.all_samples or len(rows) <= MOST:
            return rows
        return rows[np.arange(MOST) * len(rows) // MOST]

    def needed(self, width: int) -> int:
        """Return the samples that two layers of `width` features need for a value."""
        if not self.features:
            return self.least
        # canonical correlations are 1 by construction where the ranks of both layers add up to more
        # than N - 1
        return max(self.least, 2 * width + 1)

    def lack(self, count: int, width: int) -> str | None:
        """Return what `count` samples of `width` features lack for a value, or None."""
        needed = self.needed(width)
        if count >= needed:
            return None
        return f"at width {width:,} it needs {needed:,} samples (raise `samples`)"

    def measured(self, states: States, others: States | None = None) -> Found:
        """Return value, standard error (NaN: unknown) and number of samples `[L, L']`, as `similarity_matrix` does."""
        values = self.compute(states, others=others)
        if isinstance(values, tuple):
            return values
        unknown = torch.full_like(values, math.nan)
        return values, unknown, torch.full_like(values, states.shape[0])


def by_layer(measure: Callable[..., Measure]) -> Callable[..., Tensor]:
    """Return `every_two` of a measure, whose options become those of the function.

    What is returned takes `states`, `others` and the options, as `FromPairs.compute` is called.
    """

    @wraps(measure)
    def compute(states: States, others: States | None, **options: Any) -> Tensor:
        return every_two(measure(**options), states, others)

    return compute


def every_two(measure: Measure, states: States, others: States | None) -> Tensor:
    """Return the measure of every two layers `[L, L']`, of per-sample ones the mean over samples that have a value."""

    def averaged(first: Prepared, second: Prepared) -> Tensor:
        return measure.between(first, second).nanmean()

    return each_two(measure._replace(between=averaged), states, others)


def each_two(measure: Measure, states: States, others: States | None) -> Tensor:
    """Return the measure of every two layers `[L, L']`, of a per-sample measure every sample's value `[L, L', N]`.

    Where the prepared layers outgrow `HELD_BYTES`, those beyond are prepared again for each lot
    that is held.
    """
    left, right = opened(states, others, center=False, widths=measure.widths)
    check_count(measure.name, left.count, measure.least)
    is_mirrored = right is left and measure.symmetric
    matrix = [[torch.empty(0)] * right.layers for _ in range(left.layers)]
    start = 0
    while start < left.layers:
        held = _held(measure, left, start)
        stop = start + len(held)
        columns = enumerate(_prepared(measure, right, 0))
        if is_mirrored:
            columns = enumerate(chain(held, _prepared(measure, right, stop)), start)
        for b, second in columns:
            for a, first in enumerate(held, start):
                if a <= b or not is_mirrored:
                    matrix[a][b] = measure.between(first, second)
                    if is_mirrored:
                        matrix[b][a] = matrix[a][b]
        start = stop
    return torch.stack([torch.stack(row) for row in matrix])


def _held(measure: Measure, side: Blocks, start: int) -> list[Prepared]:
    """Return the layers from `start` on that are held together."""
    held = []
    size = 0
    for prepared in _prepared(measure, side, start):
        held.append(prepared)
        size += sum(part.nbytes for part in prepared)
        if size + size // len(held) > HELD_BYTES:
            break
    return held


def _prepared(measure: Measure, side: Blocks, start: int) -> Iterator[Prepared]:
    """Yield the layers from `start` on, read as many at a time as fit in a block."""
    together = max(1, blocks.BLOCK_BYTES // (8 * side.count * side.width))
    for low in range(start, side.layers, together):
        layers = slice(low, min(low + together, side.layers))
        shape = layers.stop - low, side.count, side.width
        rows = torch.empty(shape, dtype=torch.float64)
        for span in side.spans:
            rows[:, span] = side.read(span)[layers].cpu()
        yield from map(measure.prepare, rows)


def similarity_matrix(
    states: States, metric: str = "cka", *, others: States | None = None, **options: Any
) -> Tensor:
    """Return the similarity of every two layers, `[L, L']` in float64.

    `states` is `[N, L, D]`, an array, a tensor, or an object with a shape and slices of rows;
    `others` is `[N, L', D']` of the same samples, as of another model, or None for all pairs of
    `states`. `metric` is the name of a similarity, `options` are those of its function, and [a, b]
    is its value for `states[:, a]` and layer b, for per-sample ones (`cosine_similarity`,
    `angular_distance`, `pnka`, `linear_map`) the mean over the samples that have one; NaN where a layer is
    constant.

    Linear "cka", "cosine_similarity" and "angular_distance" read blocks of samples and take less
    than 1.5 GiB whatever N. The others prepare each layer as a whole (N x D numbers, for rbf "cka"
    N x N, for "rsa" half of that) and hold 1 GiB of prepared layers, or one if that is more.

    Source: that of the function.

    >>> states = np.random.default_rng(0).normal(size=(20, 4, 3))  # samples, layers, width
    >>> similarity_matrix(states).diagonal().round(decimals=3)
    tensor([1., 1., 1., 1.], dtype=torch.float64)
    """
    measures = {}
    for record in records("layerscope.metrics"):
        if isinstance(record.how, FromPairs):
            measures[record.name] = record.how
    check_choice(metric, "metric", tuple(measures))
    similarity = measures[metric]
    takes = sorted({*signature(similarity.compute).parameters} - {"states", "others"})
    for name in options:
        if name not in takes:
            hint = choices(name, takes or ["none"], "it takes")
            raise LayerscopeError(f"{metric} has no option {name!r}{hint}")
    values = similarity.compute(states, others=others, **options)
    if isinstance(values, tuple):
        return values[0]
    return values
