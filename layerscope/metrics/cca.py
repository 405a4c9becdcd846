from typing import NamedTuple

import torch
from torch import Tensor

from layerscope.metrics.arrays import Array, as_result, centred
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs import FromPairs, Measure, by_layer, of_pair


def cca(X: Array, Y: Array) -> float | Tensor:
    """Return the mean canonical correlation of two descriptions of the same samples.

    `X` is `[..., N, D]`, `Y` `[..., N, D']`; columns are centred, nothing is regularised. The mean
    is over the smaller of the two ranks, 0 ... 1, and NaN where one side does not vary. Where the
    ranks add up to more than N - 1, some correlations are 1 by construction, and all of them from D
    = N - 1 on: give many more samples than features. Raises `LayerscopeError` for N < 3.

    Source: Hotelling 1936; Raghu et al. 2017; the mean as in Kornblith et al. 2019.

    >>> states = np.random.default_rng(0).normal(size=(50, 3))
    >>> round(cca(states, states @ np.diag([1.0, 5.0, 0.1])), 3)  # any invertible linear map keeps it
    1.0
    """
    return as_result(of_pair(_measure(), X, Y))


class Principal(NamedTuple):
    """Centred rows as `basis` `[..., N, r]` times `values` `[..., r]` times `axes` `[..., r, D]`.

    `rank` `[...]` is how many of the r dimensions an item has; its basis is zero beyond them.

    >>> line = principal(torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]))
    >>> line.rank.item(), tuple(line.basis.shape)
    (1, (3, 1))
    """

    basis: Tensor
    values: Tensor
    axes: Tensor
    rank: Tensor

    def kept(self, rank: Tensor) -> "Principal":
        """Return the first dimensions alone, `rank` of each item."""
        most = max(1, int(rank.max()))
        within_rank = torch.arange(most, device=rank.device) < rank[..., None]
        basis = self.basis[..., :most] * within_rank[..., None, :]
        return Principal(
            basis, self.values[..., :most] * within_rank, self.axes[..., :most, :], rank
        )

    def mean_correlation(self, other: "Principal") -> Tensor:
        """Return the mean `[...]` of the canonical correlations with another, over the smaller rank."""
        correlations: Tensor = torch.linalg.svdvals(self.basis.mT @ other.basis)
        rank = self.rank.minimum(other.rank)
        return correlations.clamp(max=1.0).sum(-1) / rank


def principal(rows: Tensor) -> Principal:
    """Return the singular vectors and values of rows `[..., N, D]` around their mean.

    Directions below float32's rounding of the largest are none: they are what a norm leaves across
    its plane.
    """
    basis, values, axes = torch.linalg.svd(centred(rows), full_matrices=False)
    rank = (values > torch.finfo(torch.float32).eps * values[..., :1]).sum(-1)
    return Principal(basis, values, axes, rank).kept(rank)


def _measure() -> Measure:
    return Measure("CCA", 3, principal, Principal.mean_correlation)


CCA = Metric(
    cca,
    FromPairs(by_layer(_measure), "mean", least=3, features=True),
    title="CCA",
    reading="1: a linear map turns one layer into the other",
    formula="Σ ρᵢ / r, ρᵢ the canonical correlations, r the smaller of the two ranks",
    meaning="Mean canonical correlation of two layers; from 0 to 1. Noise has some too, the more the fewer samples "
    "there are: with up to twice as many samples as features it is left out.",
    direction="1: each layer is a linear map of the other. Small directions count as much as large ones.",
)
