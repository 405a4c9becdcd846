from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from layerscope.metrics.arrays import Array, as_result, check_choice
from layerscope.metrics.measure import Measure, Prepared, Principal, check_count, of_pair, principal
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs.prepared import by_layer
from layerscope.metrics.pairs.similarity import FromPairs


def pwcca(X: Array, Y: Array, weights_from: str = "first") -> float | Tensor:
    """Return the canonical correlations averaged by how much of one side each canonical variate accounts for.

    `X` is `[..., N, D]`, `Y` `[..., N, D']`, columns centred. The weight of a correlation is sum_j |<h, x_j>| over the
    columns x_j of `X` ("first") or `Y` ("second"), h being the unit-norm canonical variate of that side; so it is not
    symmetric. 0 ... 1, NaN where one side does not vary; as with `cca`, correlations are 1 by construction where
    samples are few, and tied ones leave the weights undetermined. Float64. Raises `LayerscopeError` for non-finite
    input, unequal N, N < 3 and another side.

    Source: Morcos et al. 2018, Insights on representational similarity, equations 4 and 5.

    >>> from layerscope.metrics import pwcca
    >>> states = np.random.default_rng(0).normal(size=(50, 3))
    >>> round(pwcca(states, states @ np.diag([1.0, 5.0, 0.1])), 3)
    1.0
    """
    return as_result(of_pair(Pwcca(weights_from), X, Y))


@dataclass(frozen=True)
class Pwcca(Measure):
    """Canonical variates of one side, weighted by its columns."""

    weights_from: str = "first"
    symmetric: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the side."""
        check_choice(self.weights_from, "weights_from", ("first", "second"))

    def prepare(self, rows: Tensor) -> Prepared:
        """Return basis, singular values, axes and rank."""
        check_count("PWCCA", rows.shape[-2], 3)
        return principal(rows)

    def between(self, first: Prepared, second: Prepared) -> Tensor:
        """Return the weighted mean of the correlations."""
        own, other = Principal(*first), Principal(*second)
        if self.weights_from == "second":
            own, other = other, own
        turned, correlations, _ = torch.linalg.svd(own.basis.mT @ other.basis, full_matrices=False)
        # The variates' products with the columns, without the variates: basis^T X = values * axes.
        weights = (turned.mT @ (own.values[..., None] * own.axes)).abs().sum(-1)
        there = torch.arange(weights.shape[-1], device=weights.device) < own.rank.minimum(other.rank)[..., None]
        weights = weights * there
        found: Tensor = (weights * correlations.clamp(max=1.0)).sum(-1) / weights.sum(-1)
        return found


PWCCA = Metric(
    name="pwcca",
    how=FromPairs(by_layer(Pwcca), "weights_from=first", least=3, features=True),
    title="PWCCA",
    reading="1: a linear map turns one layer into the other",
    meaning="Mean of the canonical correlations of two layers, weighted by how much of the first layer each accounts "
    "for; from 0 to 1, and left out with up to twice as many samples as features.",
    direction="1: what matters in the first layer is a linear map of the second. It is not symmetric.",
    source="Morcos et al. 2018, Insights on Representational Similarity",
    default=False,
    order=6,
)
