from dataclasses import dataclass

import torch
from torch import Tensor

from layerscope.metrics.arrays import Array, as_result
from layerscope.metrics.measure import Measure, Prepared, check_count, of_pair, principal
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs.prepared import by_layer
from layerscope.metrics.pairs.similarity import FromPairs

__all__ = ["canonical_correlations", "cca"]


def cca(X: Array, Y: Array) -> float | Tensor:
    """Return the mean canonical correlation of two descriptions of the same samples.

    `X` is `[..., N, D]`, `Y` `[..., N, D']`; columns are centred, nothing is regularised. The mean is over the smaller
    of the two ranks (`canonical_correlations`), 0 ... 1, and NaN where one side does not vary. Where the ranks add up
    to more than N - 1, some correlations are 1 by construction, and all of them from D = N - 1 on: give many more
    samples than features. Float64. Raises `LayerscopeError` for non-finite input, unequal N and N < 3.

    Source: Hotelling 1936; Raghu et al. 2017; the mean as in Kornblith et al. 2019.

    >>> from layerscope.metrics import cca
    >>> states = np.random.default_rng(0).normal(size=(50, 3))
    >>> round(cca(states, states @ np.diag([1.0, 5.0, 0.1])), 3)  # any invertible linear map keeps it
    1.0
    """
    return as_result(of_pair(Cca(), X, Y))


def canonical_correlations(X: Array, Y: Array) -> Tensor:
    """Return the canonical correlations `[..., r]` that `cca` is the mean of, descending, NaN beyond an item's rank.

    `X` and `Y` as in `cca`; r is the largest of the smaller ranks.

    >>> from layerscope.metrics import canonical_correlations
    >>> states = np.random.default_rng(0).normal(size=(50, 3))
    >>> canonical_correlations(states, states[:, :2] + 3).round(decimals=3)
    tensor([1., 1.], dtype=torch.float64)
    """
    return of_pair(_Correlations(), X, Y)


@dataclass(frozen=True)
class Cca(Measure):
    """Orthonormal bases, and the mean of the singular values of their product."""

    def prepare(self, rows: Tensor) -> Prepared:
        """Return a basis and its rank."""
        check_count("CCA", rows.shape[-2], 3)
        found = principal(rows)
        return found.basis, found.rank

    def between(self, first: Prepared, second: Prepared) -> Tensor:
        """Return the mean correlation over the smaller rank."""
        return mean_correlation(first, second)


def mean_correlation(first: Prepared, second: Prepared) -> Tensor:
    """Return the mean correlation `[...]` of two bases `[..., N, r]` with their ranks `[...]`."""
    (a, rank_a), (b, rank_b) = first, second
    return _correlations(a, b).sum(-1) / torch.minimum(rank_a, rank_b)


def _correlations(a: Tensor, b: Tensor) -> Tensor:
    found: Tensor = torch.linalg.svdvals(a.mT @ b)
    return found.clamp(max=1.0)


class _Correlations(Cca):
    def between(self, first: Prepared, second: Prepared) -> Tensor:
        (a, rank_a), (b, rank_b) = first, second
        found = _correlations(a, b)
        beyond = torch.arange(found.shape[-1], device=found.device) >= torch.minimum(rank_a, rank_b)[..., None]
        return found.masked_fill(beyond, torch.nan)


CCA = Metric(
    name="cca",
    how=FromPairs(by_layer(Cca), "mean", least=3, features=True),
    title="CCA",
    reading="1: a linear map turns one layer into the other",
    meaning="Mean canonical correlation of two layers; from 0 to 1. Noise has some too, the more the fewer samples "
    "there are: with up to twice as many samples as features it is left out.",
    direction="1: each layer is a linear map of the other. Small directions count as much as large ones.",
    source="Hotelling 1936; Raghu et al. 2017",
    default=False,
    order=4,
)
