"""Samples and their augmentations, as metrics of invariance read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

from torch import Tensor

from layerscope.metrics.arrays import unit_rows
from layerscope.metrics.metric import How, Needs


class Views:
    """Two views `[..., N, D]` of each sample in float64, and the products of their unit rows that metrics share."""

    def __init__(self, first: Tensor, second: Tensor, seed: int = 0) -> None:
        self.first, self.second, self.seed = first, second, seed

    @cached_property
    def units(self) -> tuple[Tensor, Tensor]:
        """The rows of both at unit norm."""
        return unit_rows(self.first), unit_rows(self.second)

    @cached_property
    def cosines(self) -> Tensor:
        """The cosine of every first view with every second one `[..., N, N]`."""
        return self.units[0] @ self.units[1].mT

    @cached_property
    def grams(self) -> tuple[Tensor, Tensor]:
        """The Gram of each side's unit rows `[..., N, N]`."""
        first, second = self.units
        return first @ first.mT, second @ second.mT


@dataclass(frozen=True)
class FromViews(How):
    """A metric of each sample and its first augmentation, over blocks of one size: values depend on it."""

    needs: ClassVar[Needs] = "views"
    compute: Callable[..., Tensor]
    """Returns the value of `Views`, and of an order of the Rényi entropy where there are `orders`."""
    orders: bool = False
    rough: Callable[..., Tensor] | None = None
    """A cheaper form, good enough for the standard error of a single block."""

    def measured(self, orders: Sequence[float]) -> Iterator[tuple[str, Callable[..., Tensor], Callable[..., Tensor]]]:
        """Yield the end of each variant's name, what computes it, and what computes it for its error."""
        rough = self.rough or self.compute
        for alpha in orders if self.orders else ():
            yield f",alpha={alpha:g}", partial(self.compute, alpha=alpha), partial(rough, alpha=alpha)
        if not self.orders:
            yield "", self.compute, rough


@dataclass(frozen=True)
class FromAllViews(How):
    """A metric of all samples with all their views `[N, views, D]`."""

    needs: ClassVar[Needs] = "views"
    compute: Callable[[Tensor], float | Tensor]
