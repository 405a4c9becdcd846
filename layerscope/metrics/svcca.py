from dataclasses import dataclass

from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.arrays import Array, as_finite64, as_result
from layerscope.metrics.cca import mean_correlation
from layerscope.metrics.measure import Measure, Prepared, Principal, check_count, of_pair, principal
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs.prepared import by_layer
from layerscope.metrics.pairs.similarity import FromPairs

__all__ = ["kept_dimensions", "svcca"]


def svcca(X: Array, Y: Array, variance: float = 0.99) -> float | Tensor:
    """Return the mean canonical correlation of the leading principal components of two descriptions.

    `X` is `[..., N, D]`, `Y` `[..., N, D']`; of each the fewest components are kept that explain `variance` of the
    squared singular values around the mean (`kept_dimensions`). The mean is over the smaller number kept: 0 ... 1, NaN
    where one side does not vary, and 1 by construction where both keep N - 1. Noise of k kept components has about
    sqrt(k / N): runs and comparisons leave it out up to N = 2 D. Float64. Raises `LayerscopeError` for non-finite
    input, unequal N, N < 3 and a variance not in 0 ... 1.

    Source: Raghu et al. 2017, SVCCA.

    >>> from layerscope.metrics import svcca
    >>> states = np.random.default_rng(0).normal(size=(50, 3))
    >>> round(svcca(states, -2 * states), 3)
    1.0
    """
    return as_result(of_pair(Svcca(variance), X, Y))


def kept_dimensions(X: Array, variance: float = 0.99) -> int | Tensor:
    """Return how many principal components `[...]` of `X` `[..., N, D]` explain `variance` of it; 0 where none vary.

    >>> from layerscope.metrics import kept_dimensions
    >>> kept_dimensions(np.random.default_rng(0).normal(size=(50, 3)) * [10, 10, 0.1])
    2
    """
    rank = Svcca(variance).kept(as_finite64(X, "X")).rank
    return int(rank) if rank.ndim == 0 else rank


@dataclass(frozen=True)
class Svcca(Measure):
    """CCA of the components that explain a share of the variance."""

    variance: float = 0.99

    def __post_init__(self) -> None:
        """Check the share."""
        if not 0 < self.variance <= 1:
            raise LayerscopeError(f"variance={self.variance} is not a share: give a number above 0, at most 1")

    def kept(self, rows: Tensor) -> Principal:
        """Return the components that are kept."""
        check_count("SVCCA", rows.shape[-2], 3)
        found = principal(rows)
        explained = found.values.square().cumsum(-1)
        short = (explained < self.variance * explained[..., -1:]).sum(-1)
        return found.kept((short + 1).minimum(found.rank))

    def prepare(self, rows: Tensor) -> Prepared:
        """Return a basis of the kept components and their number."""
        found = self.kept(rows)
        return found.basis, found.rank

    def between(self, first: Prepared, second: Prepared) -> Tensor:
        """Return the mean correlation over the smaller number."""
        return mean_correlation(first, second)


SVCCA = Metric(
    name="svcca",
    how=FromPairs(by_layer(Svcca), "variance=0.99", least=3, features=True),
    title="SVCCA",
    reading="1: a linear map turns main directions into each other",
    meaning="Mean canonical correlation of the principal components that explain 99 % of the variance of each layer; "
    "from 0 to 1, and left out with up to twice as many samples as features.",
    direction="1: the main directions of each layer are a linear map of those of the other.",
    source="Raghu et al. 2017, SVCCA",
    default=False,
    order=5,
)
