import torch
from torch import Tensor

from layerscope.metrics.arrays import Array, as_result, check_choice
from layerscope.metrics.cca import Principal, principal
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs import FromPairs, Measure, by_layer, of_pair


def pwcca(X: Array, Y: Array, weights_from: str = "first") -> float | Tensor:
    """Return the canonical correlations averaged by how much of one side each canonical variate accounts for.

    `X` is `[..., N, D]`, `Y` `[..., N, D']`, columns centred. The weight of a correlation is sum_j
    |<h, x_j>| over the columns x_j of `X` ("first") or `Y` ("second"), h being the unit-norm
    canonical variate of that side; so it is not symmetric. 0 ... 1, NaN where one side does not
    vary; as with `cca`, correlations are 1 by construction where samples are few, and tied ones
    leave the weights undetermined. Raises `LayerscopeError` for N < 3.

    Source: Morcos et al. 2018, Insights on Representational Similarity, equations 4 and 5.

    >>> states, others = np.random.default_rng(0).normal(size=(2, 50, 2))
    >>> others[:, 0] = states[:, 0]  # one column of two is shared: `cca` is about a half,
    >>> states[:, 0] *= 10  # and it accounts for most of the first side alone
    >>> [round(pwcca(states, others, weights_from), 2) for weights_from in ("first", "second")]
    [0.91, 0.58]
    """
    return as_result(of_pair(_measure(weights_from), X, Y))


def _measure(weights_from: str = "first") -> Measure:
    check_choice(weights_from, "weights_from", ("first", "second"))

    def between(first: Principal, second: Principal) -> Tensor:
        weighing = first
        other = second
        if weights_from == "second":
            weighing = second
            other = first
        products = weighing.basis.mT @ other.basis
        rotation, correlations, _ = torch.linalg.svd(products, full_matrices=False)
        # The variates' products with the columns, without the variates: basis^T X = values * axes.
        columns = weighing.values[..., None] * weighing.axes
        weights: Tensor = (rotation.mT @ columns).abs().sum(-1)
        dimensions = torch.arange(weights.shape[-1], device=weights.device)
        within_rank = dimensions < weighing.rank.minimum(other.rank)[..., None]
        weights = weights * within_rank
        weighted: Tensor = weights * correlations.clamp(max=1.0)
        return weighted.sum(-1) / weights.sum(-1)

    return Measure("PWCCA", 3, principal, between, symmetric=False)


PWCCA = Metric(
    pwcca,
    FromPairs(by_layer(_measure), "weights_from=first", least=3, features=True),
    title="PWCCA",
    reading="1: a linear map turns one layer into the other",
    formula="Σ αᵢ ρᵢ / Σ αᵢ, αᵢ = Σⱼ |⟨hᵢ, xⱼ⟩|, ρᵢ the canonical correlations, hᵢ the first layer's "
    "variates, xⱼ its centred columns",
    meaning="Mean of the canonical correlations of two layers, weighted by how much of the first layer each accounts "
    "for; from 0 to 1, and left out with up to twice as many samples as features.",
    direction="1: what matters in the first layer is a linear map of the second. It is not symmetric.",
)
