"""What metrics are computed from: tokens, pooled states or views, with the factors that metrics share.

Several metrics take the same costly thing of the same states: effective rank and anisotropy the
singular values, InfoNCE and DiME the products of unit rows. `Tokens`, `Rows` and `Views` compute
such a factor when it is first needed, and keep it:

    rows = Rows(states)         nothing is computed yet
    effective_rank(rows)        the singular values of the states
    nesum(rows)                 those of the centred states

Each has the record of how a run takes a metric of its kind.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from layerscope.metrics.arrays import (
    Array,
    as_finite64,
    as_tensor,
    centred,
    real_mask,
    slices,
    unit_rows,
)
from layerscope.metrics.blocks import RowBlocks
from layerscope.metrics.matrix_entropy import scaled_rows
from layerscope.metrics.metric import How
from layerscope.metrics.spectrum import row_factor, singular_values

T = TypeVar("T")
BLOCK = 2048  # stored rows that are read at a time
SINK = 10.0
"""A token is a sink where its norm is more than this many times its sample's median."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """States `[..., T, D]` of tokens, a `mask` of the real ones (None: all), and the factors that metrics share.

    >>> tokens = Tokens(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), mask=torch.tensor([1, 0]))
    >>> tokens.norms, tokens.lengths
    (tensor([5., 0.]), tensor(1))
    """

    states: Tensor
    mask: Tensor | None = None
    without_sinks: bool = False
    rows: Sequence[str] = ("unit",)
    _computed: dict[Any, Any] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, tokens: "Array | Tokens", mask: Array | None) -> "Tokens":
        """Return the tokens of arrays, half precision in float32, or tokens as they are."""
        if isinstance(tokens, Tokens):
            return tokens
        states = as_tensor(tokens, "tokens", 2)
        return cls(states, None if mask is None else torch.as_tensor(mask))

    @cached_property
    def real(self) -> Tensor:
        """Which tokens are real `[..., T]`."""
        return real_mask(self.states, self.mask)

    @cached_property
    def norms(self) -> Tensor:
        """The Euclidean norm of every token `[..., T]`, at least in float32."""
        exact = torch.promote_types(self.states.dtype, torch.float32)
        norms: Tensor = torch.linalg.vector_norm(self.states, dim=-1, dtype=exact)
        return norms

    @cached_property
    def median(self) -> Tensor:
        """The median norm of each sample `[...]`, the mean of the middle two of an even number, NaN without tokens."""
        count = self.real.sum(-1, keepdim=True)
        ordered = self.norms.masked_fill(~self.real, torch.inf).sort(-1).values
        lower = ordered.gather(-1, ((count - 1) // 2).clamp(min=0))
        median = (lower + ordered.gather(-1, count // 2)) / 2
        return median.masked_fill(count == 0, torch.nan).squeeze(-1)

    @cached_property
    def sinks(self) -> Tensor:
        """Which tokens are sinks `[..., T]`."""
        return self.real & (self.norms > SINK * self.median[..., None])

    @cached_property
    def used(self) -> Tensor | None:
        """Which tokens entropies and means take `[..., T]`, without sinks where these are left out; None: all."""
        return (self.real & ~self.sinks).long() if self.without_sinks else self.mask

    @cached_property
    def lengths(self) -> Tensor:
        """The number of used tokens `[...]`."""
        if self.used is not None:
            return self.used.sum(-1)
        *samples, length, _ = self.states.shape
        return torch.full(samples, length, device=self.states.device)

    def once(self, factor: "Callable[[Tokens], T]") -> T:
        """Return what a metric's own factor gives, computed when it is first needed."""
        if factor not in self._computed:
            self._computed[factor] = factor(self)
        factored: T = self._computed[factor]
        return factored


def entropy_variant(alpha: float, rows: str) -> str:
    """Return what an entropy of an order is called in a run's table, of rows that are scaled so.

    >>> entropy_variant(1.0, "unit"), entropy_variant(2.0, "raw")
    ('alpha=1', 'alpha=2,rows=raw')
    """
    if rows == "unit":
        return f"alpha={alpha:g}"
    return f"alpha={alpha:g},rows={rows}"


def by_layer(
    layers: Sequence[Tensor], orders: Sequence[float], chosen: Any
) -> dict[str, Tensor]:
    """Return the values `[L, B]` of a metric without variants, from those `[B]` of each layer."""
    return {"": torch.stack(list(layers)).float()}


@dataclass(frozen=True)
class FromTokens(How):
    """A metric of each sample's tokens, computed layer by layer inside the pass and finished once a batch."""

    needs = "tokens"
    compute: Callable[[Tokens], Any]
    """Returns the value of each sample, or what `finish` makes it of."""
    finish: Callable[[Sequence[Any], Sequence[float], Any], dict[str, Tensor]] = (
        by_layer
    )
    """Takes what all layers gave, the orders of the Rényi entropy and an index of the samples whose eigenvalues are
    computed; returns values `[L, B]` by variant."""
    rare: bool = False
    """Left out of the table of a run in which it is zero everywhere."""


class Rows:
    """Rows `[..., N, D]` in float64 and the factors that metrics share, each computed when it is first needed.

    >>> Rows(torch.tensor([[3.0, 0.0], [0.0, 4.0]])).spectrum
    tensor([4., 3.], dtype=torch.float64)
    """

    def __init__(self, Z: Array) -> None:
        self._rows = as_finite64(Z, "Z")
        self.count, self.width = self._rows.shape[-2:]

    @property
    def rows(self) -> Tensor:
        """All rows `[..., N, D]`."""
        return self._rows

    @classmethod
    def of(cls, Z: "Array | Rows") -> "Rows":
        """Return the rows of an array, or rows as they are."""
        return Z if isinstance(Z, Rows) else cls(Z)

    @cached_property
    def spectrum(self) -> Tensor:
        """The singular values, descending."""
        return self._spectrum("raw")

    @cached_property
    def centred_spectrum(self) -> Tensor:
        """The singular values, descending, of the rows around their mean."""
        return self._spectrum("around")

    def factor(self, rows: str) -> Tensor:
        """Return a matrix with the singular values of the rows, scaled as named.

        "raw": as they are; "unit": at unit norm; "around": less their mean; "centered": that, and
        then at unit norm.
        """
        if rows == "around":
            return centred(self.rows)
        return scaled_rows(self.rows, rows)

    def _spectrum(self, rows: str) -> Tensor:
        return singular_values(self.factor(rows))[..., : min(self.count, self.width)]


class StoredRows(Rows):
    """Rows of one layer on disk `[N, 1, D]`, read in blocks.

    A D × D factor of them has the singular values of all N, so that memory does not grow with N.
    """

    def __init__(self, states: RowBlocks) -> None:
        self._states = states
        self.count, _, self.width = states.shape

    @property
    def rows(self) -> Tensor:
        """All rows `[N, D]`."""
        return self._read(slice(0, self.count))

    def factor(self, rows: str) -> Tensor:
        """Return a matrix with the singular values of the rows, scaled as named."""
        factor = torch.empty(0, self.width, dtype=torch.float64)
        for block in self._blocks():
            if rows in ("around", "centered"):
                first, mean = self._mean
                block = (block - first) - mean
            if rows in ("unit", "centered"):
                block = unit_rows(block)
            factor = row_factor(factor.to(block.device), block)
        return factor

    @cached_property
    def _mean(self) -> tuple[Tensor, Tensor]:
        """The first row and the mean of all less it: equal rows are exactly zero, and so is their mean."""
        first = self._read(slice(0, 1))
        total = torch.zeros(1)
        for block in self._blocks():
            total = total + (block - first).sum(0)
        return first, total / self.count

    def _blocks(self) -> Iterator[Tensor]:
        for span in slices(self.count, BLOCK):
            yield self._read(span)

    def _read(self, span: slice) -> Tensor:
        return torch.as_tensor(self._states[span])[:, 0].double()


@dataclass(frozen=True)
class FromRows(How):
    """A metric of the pooled states of all samples."""

    needs = "pooled"
    compute: Callable[..., float | Tensor]
    """Takes `Rows`; where there are `orders`, a matrix of their singular values and an order of the Rényi entropy."""
    orders: bool = False
    variant: Callable[[Rows], str | None] = lambda rows: None
    """What the choices made here are called in a run's table."""
    least: tuple[int, int] = (0, 0)
    """The fewest samples and features with which it is defined."""
    of_sums: bool = True
    """Whether it takes what `moments.SummedRows` has, and not the rows themselves."""

    def streams(self, options: Any) -> bool:
        """Return whether it is one of the second moments, which rows at unit norm around their mean are not."""
        return self.of_sums and not (self.orders and "centered" in options.rows)

    def lack(self, count: int, width: int) -> str | None:
        """Return what `count` samples of `width` features lack for a value, or None."""
        if count >= self.least[0] and width >= self.least[1]:
            return None
        return f"it needs {self.least[0]} samples or more of {self.least[1]} features or more"

    def measured(self, rows: Rows, options: Any) -> Iterator[tuple[str | None, float]]:
        """Yield each variant that the options ask for with its value."""
        if not self.orders:
            yield self.variant(rows), float(self.compute(rows))
            return
        for scaling in options.rows:
            factor = rows.factor(scaling)
            for alpha in options.alpha:
                value = float(self.compute(factor, alpha))
                yield entropy_variant(alpha, scaling), value


@dataclass(frozen=True, eq=False)
class Views:
    """Two views `[..., N, D]` of each sample in float64, and the products of their unit rows that metrics share.

    >>> views = Views(torch.eye(2).double(), torch.eye(2).double())
    >>> views.cosines.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    first: Tensor
    second: Tensor
    seed: int = 0

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

    needs = "views"
    compute: Callable[..., Tensor]
    """Returns the value of `Views`, and of an order of the Rényi entropy where there are `orders`."""
    orders: bool = False
    rough: Callable[..., Tensor] | None = None
    """A cheaper form, good enough for the standard error of a single block."""

    def measured(
        self, views: Views, orders: Sequence[float], is_rough: bool
    ) -> Iterator[tuple[str, float]]:
        """Yield the end of each variant's name with its value, or a rough one."""
        compute = self.compute
        if is_rough and self.rough is not None:
            compute = self.rough
        if not self.orders:
            yield "", float(compute(views))
            return
        for alpha in orders:
            yield f",alpha={alpha:g}", float(compute(views, alpha=alpha))


@dataclass(frozen=True)
class FromAllViews(How):
    """A metric of all samples with all their views `[N, views, D]`."""

    needs = "views"
    compute: Callable[[Tensor], float | Tensor]
