from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import Array, as_result
from layerscope.metrics.cca import Principal, principal
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs import FromPairs, Measure, by_layer, of_pair


def svcca(X: Array, Y: Array, variance: float = 0.99) -> float | Tensor:
    """Return the mean canonical correlation of the leading principal components of two descriptions.

    `X` is `[..., N, D]`, `Y` `[..., N, D']`; of each the fewest components are kept that explain
    `variance` of the squared singular values around the mean. The mean is over
    the smaller number kept: 0 ... 1, NaN where one side does not vary, and 1 by construction where
    both keep N - 1. Noise of k kept components has about sqrt(k / N): runs and comparisons leave it
    out up to N = 2 D. Raises `LayerscopeError` for N < 3.

    Source: Raghu et al. 2017, SVCCA.

    >>> states = np.random.default_rng(0).normal(size=(50, 3))
    >>> round(svcca(states, -2 * states), 3)
    1.0
    """
    return as_result(of_pair(_measure(variance), X, Y))


def _measure(variance: float = 0.99) -> Measure:
    if not 0 < variance <= 1:
        raise LayerscopeError(
            f"variance={variance} is not a share: give a number above 0, at most 1"
        )

    def prepare(rows: Tensor) -> Principal:
        """Return the leading principal components alone."""
        parts = principal(rows)
        explained = parts.values.square().cumsum(-1)
        short = (explained < variance * explained[..., -1:]).sum(-1)
        return parts.kept((short + 1).minimum(parts.rank))

    return Measure("SVCCA", 3, prepare, Principal.mean_correlation)


SVCCA = Metric(
    svcca,
    FromPairs(by_layer(_measure), "variance=0.99", least=3, features=True),
    title="SVCCA",
    reading="1: a linear map turns main directions into each other",
    formula="Σ ρᵢ / r, ρᵢ the canonical correlations of the leading principal components (99 % of the variance), r the "
    "smaller number of them",
    meaning="Mean canonical correlation of the principal components that explain 99 % of the variance of each layer; "
    "from 0 to 1, and left out with up to twice as many samples as features.",
    direction="1: the main directions of each layer are a linear map of those of the other.",
)
