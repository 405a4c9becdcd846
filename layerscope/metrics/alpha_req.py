import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import Array, as_result
from layerscope.metrics.factors import FromRows, Rows
from layerscope.metrics.metric import Metric

FIT = (10, 100)
"""Ranks that the line is fitted on, as published."""


def alpha_req(Z: Array | Rows, fit: tuple[int, int] = FIT) -> float | Tensor:
    """Return the exponent alpha of the power law l_i ~ i^-alpha that the covariance's eigenvalues follow.

    `Z` is `[..., N, D]`. log l is fitted by a line in log i over the ranks `fit` (from 1, both ends
    included, cut to the min(N - 1, D) that there are), each rank weighted 1 / i so that every
    stretch of the logarithmic axis counts alike. The value `[...]` is above 0 for a spectrum that
    falls; a low one means variance in many directions. Eigenvalues below float64's rounding of the
    largest are left out, and the value is NaN where fewer than two remain. Raises `LayerscopeError`
    for a `fit` that holds fewer than two ranks.

    Source: Agrawal et al. 2022, α-ReQ; the weighted fit as in Stringer et al. 2019.

    >>> states = np.random.default_rng(0).normal(size=(500, 50)) / np.arange(1, 51)  # variances 1 / i²
    >>> round(alpha_req(states))
    2
    """
    rows = Rows.of(Z)
    values = rows.centred_spectrum
    full_rank = min(rows.count - 1, rows.width)
    first = fit[0]
    last = min(fit[1], full_rank)
    if first < 1 or last <= first:
        raise LayerscopeError(
            f"fit={tuple(fit)} holds fewer than two of the ranks 1 ... {full_rank}: give more"
        )
    rounding = torch.finfo(values.dtype).eps * rows.count * values[..., :1]
    chosen = values[..., first - 1 : last]
    above = chosen > rounding
    ranks = values.new_tensor(range(first, last + 1))
    weights = above / ranks
    x = ranks.log()
    y = 2.0 * chosen.masked_fill(~above, 1.0).log()
    total = weights.sum(-1, keepdim=True)
    dx = x - (weights * x).sum(-1, keepdim=True) / total
    # Below two ranks the line has no slope: 0 / 0.
    spread = (weights * dx.square()).sum(-1)
    slope = -(weights * dx * y).sum(-1) / spread
    return as_result(slope.masked_fill(above.sum(-1) < 2, torch.nan))


def _ranks(rows: Rows) -> str:
    return f"ranks={FIT[0]}-{min(FIT[1], rows.count - 1, rows.width)}"


ALPHA_REQ = Metric(
    alpha_req,
    FromRows(alpha_req, variant=_ranks, least=(FIT[0] + 2, FIT[0] + 1)),
    title="α-ReQ",
    reading="exponent; low: variance in many directions",
    formula="−α the slope of log λᵢ on log i, i = 10 … 100, weights 1 / i, λ the eigenvalues of the covariance",
    meaning="Exponent α of the power law i^−α that the eigenvalues of the pooled states' covariance follow, fitted "
    "from rank 10 to 100, or to as many as there are.",
    direction="Low: the spectrum falls slowly. Values near 1 were proposed as a sign of good states: a hypothesis.",
    low=True,
)
