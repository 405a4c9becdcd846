"""The pooled states of all samples, as metrics of a data set read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from layerscope.metrics.arrays import Array, as_finite64, centred, unit_rows
from layerscope.metrics.metric import How, Needs
from layerscope.metrics.pairs.blocks import RowBlocks
from layerscope.metrics.spectrum import row_factor, singular_values

BLOCK = 2048


class Rows:
    """Rows `[..., N, D]` in float64 and the factors that metrics share, each computed when it is first needed."""

    def __init__(self, Z: Array) -> None:
        self._rows = as_finite64(Z, "Z")
        self.count, self.width = self._rows.shape[-2:]

    @classmethod
    def of(cls, Z: Array | Rows) -> Rows:
        """Return the rows of an array, or rows as they are."""
        return Z if isinstance(Z, Rows) else cls(Z)

    def read(self, span: slice) -> Tensor:
        """Return some of the rows `[n, D]`."""
        return self._rows[span]

    @cached_property
    def spectrum(self) -> Tensor:
        """The singular values, descending."""
        return singular_values(self._factor(lambda rows: rows))

    @cached_property
    def centred_spectrum(self) -> Tensor:
        """The singular values, descending, of the rows around their mean."""
        return singular_values(self._centred_factor())

    @cached_property
    def unit_factor(self) -> Tensor:
        """A matrix with the singular values of the rows at unit norm."""
        return self._factor(unit_rows)

    def _factor(self, scaled: Callable[[Tensor], Tensor]) -> Tensor:
        return scaled(self._rows)

    def _centred_factor(self) -> Tensor:
        return centred(self._rows)


class StoredRows(Rows):
    """Rows of one layer on disk `[N, 1, D]`, read in blocks: a D x D factor has the singular values of all N."""

    def __init__(self, states: RowBlocks) -> None:
        self._states = states
        self.count, _, self.width = states.shape

    def read(self, span: slice) -> Tensor:
        """Return some of the rows `[n, D]`."""
        return torch.as_tensor(self._states[span])[:, 0].double()

    def _factor(self, scaled: Callable[[Tensor], Tensor]) -> Tensor:
        return row_factor(map(scaled, self._blocks()))

    def _centred_factor(self) -> Tensor:
        # Less the first row, equal rows are exactly zero, and so is their mean.
        first, total = self.read(slice(0, 1))[0], torch.zeros(1)
        for block in self._blocks():
            total = total + (block - first).sum(0)
        mean = total / self.count
        return self._factor(lambda rows: (rows - first) - mean)

    def _blocks(self) -> Iterator[Tensor]:
        return (self.read(slice(start, start + BLOCK)) for start in range(0, self.count, BLOCK))


@dataclass(frozen=True)
class FromRows(How):
    """A metric of the pooled states of all samples."""

    needs: ClassVar[Needs] = "pooled"
    compute: Callable[..., float | Tensor]
    """Takes `Rows`, and an order of the Rényi entropy where there are `orders`."""
    orders: bool = False
    variant: Callable[[Rows], str | None] = lambda rows: None
    """What the choices made here are called in a run's table."""
    least: tuple[int, int] = (0, 0)
    """The fewest samples and features with which it is defined."""

    def lack(self, count: int, width: int) -> str | None:
        """Return what `count` samples of `width` features lack for a value, or None."""
        if count >= self.least[0] and width >= self.least[1]:
            return None
        return f"it needs {self.least[0]} samples or more of {self.least[1]} features or more"

    def measured(self, rows: Rows, orders: Sequence[float]) -> Iterator[tuple[str | None, float]]:
        """Yield each variant with its value."""
        if self.orders:
            for alpha in orders:
                yield f"alpha={alpha:g}", float(self.compute(rows, alpha))
        else:
            yield self.variant(rows), float(self.compute(rows))
