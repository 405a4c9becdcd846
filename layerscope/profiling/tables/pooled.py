"""Metrics of the pooled states of all samples: their spectrum, and their distances, read in row blocks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from layerscope import metrics
from layerscope.metrics.alpha_req import FIT, fitted_ranks, power_law
from layerscope.metrics.anisotropy import first_share
from layerscope.metrics.arrays import unit_rows
from layerscope.metrics.intrinsic_dimension import dimension_of_rows
from layerscope.metrics.spectrum import row_factor, singular_values
from layerscope.profiling.tables.source import Row, Source
from layerscope.runs.states import Column, StoredStates

CENTRED = ("anisotropy", "alpha_req", "nesum")
EPS, DISCARD = 1e-7, 0.1  # of RankMe and of the intrinsic dimension, as they were published


def pooled_rows(source: Source) -> Iterator[Row]:
    """Yield spectral metrics by layer from a D x D factor that has the singular values of all N rows."""
    for pooling, column, states in source.layers():
        yield from _uncentred(source, pooling, column, states)
        if any(source.wants(name) for name in CENTRED):
            yield from _centred(source, pooling, column, states)
        if source.wants("intrinsic_dimension"):
            value, told = float(dimension_of_rows(partial(_rows, states), len(states), DISCARD)), f"discard={DISCARD:g}"
            yield source.row("intrinsic_dimension", column, value, variant=told, pooling=pooling)


def _uncentred(source: Source, pooling: str, column: Column, states: StoredStates) -> Iterator[Row]:
    if source.wants("dataset_entropy"):
        factor = row_factor(unit_rows(block) for block in _blocks(states))
        for alpha in source.options.alpha:
            value = float(metrics.matrix_entropy(factor, alpha, rows="raw"))
            yield source.row("dataset_entropy", column, value, variant=f"alpha={alpha:g}", pooling=pooling)
    if source.wants("effective_rank") or source.wants("rankme"):
        factor = row_factor(_blocks(states))
        if source.wants("effective_rank"):
            yield source.row("effective_rank", column, float(metrics.effective_rank(factor)), pooling=pooling)
        if source.wants("rankme"):
            value, told = float(metrics.rankme(factor, EPS)), f"eps={EPS:g}"
            yield source.row("rankme", column, value, variant=told, pooling=pooling)


def _centred(source: Source, pooling: str, column: Column, states: StoredStates) -> Iterator[Row]:
    first, mean = _mean_row(states)
    values = singular_values(row_factor((block - first) - mean for block in _blocks(states)))
    share = float(first_share(values))
    if source.wants("anisotropy"):
        yield source.row("anisotropy", column, share, pooling=pooling)
    if source.wants("nesum"):
        yield source.row("nesum", column, 1.0 / share, pooling=pooling)
    low, high = fitted_ranks(len(states), states.width, FIT)
    if source.wants("alpha_req") and high > low:
        value = float(power_law(values, len(states)))
        yield source.row("alpha_req", column, value, variant=f"ranks={low}-{high}", pooling=pooling)


def _mean_row(states: StoredStates) -> tuple[Tensor, Tensor]:
    """Return the first row, and the mean of all rows less that one, which is exactly zero where all are equal."""
    first, total = torch.zeros(0), torch.zeros(1)
    for block in _blocks(states):
        first = block[0] if len(first) == 0 else first
        total = total + (block - first).sum(0)
    return first, total / len(states)


def _rows(states: StoredStates, rows: slice) -> Tensor:
    return states[rows][:, 0].double()


def _blocks(states: StoredStates) -> Iterator[Tensor]:
    return (block[:, 0].double() for block in states.blocks())
