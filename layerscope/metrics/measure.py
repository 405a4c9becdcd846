"""What similarities of two layers share: each layer is prepared once, and any two prepared layers are compared."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.arrays import Array, as_pair64, centred

Prepared: TypeAlias = tuple[Tensor, ...]


class Measure(Protocol):
    """A similarity in two steps, so that the work on a layer is done once for all its pairs."""

    symmetric: ClassVar[bool] = True

    def prepare(self, rows: Tensor) -> Prepared:
        """Return what comparisons need of finite float64 rows `[..., N, D]`."""

    def between(self, first: Prepared, second: Prepared) -> Tensor:
        """Return the similarity `[...]` of two prepared layers, or one value a sample `[..., N]`."""


def of_pair(measure: Measure, X: Array, Y: Array) -> Tensor:
    """Return the measure of two arrays `[..., N, D]` and `[..., N, D']` of the same samples."""
    first, second = as_pair64(X, Y, ("X", "Y"))
    return measure.between(measure.prepare(first), measure.prepare(second))


def check_count(name: str, count: int, least: int) -> None:
    """Raise `LayerscopeError` for fewer rows than a measure is defined for."""
    if count < least:
        raise LayerscopeError(f"{name} over {count} rows is not defined: give at least {least} samples")


def narrow(rows: Tensor) -> Tensor:
    """Return rows `[..., N, min(N, D)]` with the inner products of `rows` `[..., N, D]`."""
    return torch.linalg.qr(rows.mT, mode="r").R.mT if rows.shape[-1] > rows.shape[-2] else rows


class Principal(NamedTuple):
    """Centred rows as `basis` `[..., N, r]` times `values` `[..., r]` times `axes` `[..., r, D]`."""

    basis: Tensor
    values: Tensor
    axes: Tensor
    rank: Tensor
    """How many of the r dimensions an item has `[...]`; its basis is zero beyond them."""

    def kept(self, rank: Tensor) -> Principal:
        """Return the first dimensions alone, `rank` of each item."""
        most = max(1, int(rank.max()))
        there = torch.arange(most, device=rank.device) < rank[..., None]
        basis = self.basis[..., :most] * there[..., None, :]
        return Principal(basis, self.values[..., :most] * there, self.axes[..., :most, :], rank)


def principal(rows: Tensor) -> Principal:
    """Return the singular vectors and values of rows `[..., N, D]` around their mean.

    Directions with less than float32's rounding of the largest singular value are none: a layer that a norm holds in a
    plane has no more than rounding across it.
    """
    basis, values, axes = torch.linalg.svd(centred(rows), full_matrices=False)
    rank = (values > torch.finfo(torch.float32).eps * values[..., :1]).sum(-1)
    return Principal(basis, values, axes, rank).kept(rank)
