"""Sums over samples that come in chunks, from which metrics of all of them are computed: memory knows no N.

Of values a sum has their number, mean and squared deviations; of rows their mean and factors, D × D
at most, that have the singular values of all of them:

    chunk 1  [1024, D]  →  R_1 [D, D]
    chunk 2  [1024, D]  →  R_2 [D, D]     R of [R_1; R_2] has the singular values of both chunks

`a + b` is that of both data sets (Chan, Golub and LeVeque 1983), so chunks and processes may be
joined in any grouping; the same grouping gives the same bits. All are float64.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from layerscope.metrics.arrays import Estimate, as_finite64, unit_rows
from layerscope.metrics.factors import Rows
from layerscope.metrics.spectrum import row_factor


@dataclass(frozen=True)
class ValueSums:
    """Number, mean and squared deviations `[...]` of a value that each sample has.

    One that is NaN does not count.
    """

    count: Tensor
    mean: Tensor
    squares: Tensor

    @classmethod
    def of(cls, values: Tensor) -> "ValueSums":
        """Return those of `[..., n]` values, at least one.

        >>> from layerscope.metrics.moments import ValueSums
        >>> (ValueSums.of(torch.tensor([1.0, 2.0])) + ValueSums.of(torch.tensor([6.0]))).mean.item()
        3.0
        """
        valid = ~values.isnan()
        count = valid.sum(-1).double()
        filled = values.double().masked_fill(~valid, 0.0)
        # around the first value equal ones have no deviation
        first = filled.gather(-1, valid.int().argmax(-1, keepdim=True))
        deviations = (filled - first) * valid
        mean = deviations.sum(-1, keepdim=True) / count.clamp(min=1)[..., None]
        squares = ((deviations - mean) * valid).square().sum(-1)
        return cls(count, (first + mean).squeeze(-1), squares)

    def __add__(self, other: "ValueSums") -> "ValueSums":
        count = self.count + other.count
        share = other.count / count.clamp(min=1)
        start = torch.where(self.count > 0, self.mean, other.mean)
        gap = (other.mean - start).where(other.count > 0, 0.0)
        between = gap.square() * self.count * share
        squares = self.squares + other.squares + between
        return ValueSums(count, start + gap * share, squares)

    def estimates(self) -> list[Estimate]:
        """Return mean, standard error and number of every value, flat; NaN where one is not defined."""
        variance = self.squares / (self.count - 1) / self.count
        means = self.mean.where(self.count > 0, math.nan).flatten().tolist()
        errors = variance.sqrt().where(self.count > 1, math.nan).flatten().tolist()
        counts = self.count.int().flatten().tolist()
        return [*map(Estimate, means, errors, counts)]


@dataclass(frozen=True)
class RowSums:
    """Number, mean `[..., D]` and second moments of rows, as factors whose Gram matrix they are.

    `spread` `[..., r, D]` is that of the rows around their mean, `units` that of the rows at unit
    norm. A factor is the R of a QR decomposition: unlike a sum of products it keeps singular values
    below 1e-8 of the largest.
    """

    count: Tensor
    mean: Tensor
    spread: Tensor
    units: Tensor

    @classmethod
    def of(cls, rows: Tensor) -> "RowSums":
        """Return those of `[..., n, D]` finite rows.

        >>> from layerscope.metrics import effective_rank
        >>> from layerscope.metrics.moments import RowSums, SummedRows
        >>> states = torch.arange(12.0).view(4, 3).sin()
        >>> both = RowSums.of(states[None, :2]) + RowSums.of(states[None, 2:])
        >>> abs(effective_rank(SummedRows(both, 0)) - effective_rank(states)) < 1e-12
        True
        """
        rows = as_finite64(rows, "rows")
        first = rows[..., :1, :]
        # equal rows are exactly zero around it
        mean = (rows - first).mean(-2, keepdim=True)
        count = torch.tensor(float(rows.shape[-2]), dtype=torch.float64)
        spread = (rows - first) - mean
        return cls(count, (first + mean).squeeze(-2), spread, unit_rows(rows))

    def __add__(self, other: "RowSums") -> "RowSums":
        count = self.count + other.count
        gap = other.mean - self.mean
        scale = (self.count * other.count / count).sqrt()
        between = gap[..., None, :] * scale
        spread = row_factor(self.spread, other.spread, between)
        mean = self.mean + gap * (other.count / count)
        return RowSums(count, mean, spread, row_factor(self.units, other.units))


class SummedRows(Rows):
    """What metrics share of one layer's rows, from the sums of all layers: all but the rows themselves."""

    def __init__(self, sums: RowSums, layer: int) -> None:
        self._sums = sums
        self._layer = layer
        self.count = int(sums.count)
        self.width = sums.mean.shape[-1]

    def factor(self, rows: str) -> Tensor:
        """Return a matrix with the singular values of the rows "raw", at "unit" norm, or "around" their mean."""
        sums = self._sums
        spread = sums.spread[self._layer]
        if rows == "raw":
            mean = sums.mean[self._layer]
            return row_factor(spread, mean[None] * sums.count.sqrt())
        return {"unit": sums.units[self._layer], "around": spread}[rows]
