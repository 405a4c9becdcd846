from torch import Tensor

from layerscope.metrics.arrays import Array, as_result
from layerscope.metrics.factors import FromRows, Rows
from layerscope.metrics.metric import Metric
from layerscope.metrics.spectrum import entropy_of_spectrum


def effective_rank(Z: Array | Rows, center: bool = False) -> float | Tensor:
    """Return exp of the Shannon entropy of the singular values of Z, scaled to sum 1.

    `Z` is `[..., N, D]`, taken around its mean row with `center`; the value `[...]` lies in 1 ...
    min(N, D) (1 for an all-zero Z), at least exp(S_1) of the raw rows (`matrix_entropy`), whose
    spectrum is the square of this one.

    Source: Roy, Vetterli 2007, The Effective Rank: A Measure of Effective Dimensionality.

    >>> round(effective_rank(np.diag([2.0, 1.0])), 2)
    1.89
    """
    rows = Rows.of(Z)
    return as_result(
        entropy_of_spectrum(rows.centred_spectrum if center else rows.spectrum).exp()
    )


EFFECTIVE_RANK = Metric(
    effective_rank,
    FromRows(effective_rank),
    unit="dimensions",
    reading="dimensions in use",
    formula="exp(−Σ pᵢ log pᵢ), pᵢ = σᵢ / Σ σⱼ, σ the singular values of the pooled states, not centred",
    meaning="Exponential of the entropy of the singular values, normalised to sum 1; from 1 to min(samples, width).",
    direction="High: more dimensions are in use. It is no sign of quality by itself: noise has full rank.",
)
