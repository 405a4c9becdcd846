from torch import Tensor

from layerscope.metrics.arrays import Array, as_result
from layerscope.metrics.factors import FromRows, Rows
from layerscope.metrics.metric import Metric


def anisotropy(Z: Array | Rows) -> float | Tensor:
    """Return the share of the variance that lies in one direction: s_1^2 / sum s^2 of the centred rows.

    `Z` is `[..., N, D]`; the value `[...]` lies in 1/min(N - 1, D) ... 1, high where the rows
    spread along a line. NaN where all rows are equal and nothing varies.

    Source: Razzhigaev et al. 2024, The Shape of Learning.

    >>> round(anisotropy(np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]])), 3)  # all on a line
    1.0
    """
    values = Rows.of(Z).centred_spectrum
    # The largest is taken out first, so that no square overflows or vanishes; 0 / 0 is NaN.
    return as_result(1.0 / (values / values[..., :1]).square().sum(-1))


ANISOTROPY = Metric(
    anisotropy,
    FromRows(anisotropy),
    unit="%",
    reading="share of the variance in one direction",
    formula="λ₁ / Σ λᵢ, λ the eigenvalues of the covariance",
    meaning="Share of the variance of the pooled states, around their mean, that lies in its largest direction; from "
    "1 / min(samples − 1, width) to 1.",
    direction="High: samples differ along a line more than in all other directions together, as in the middle of many "
    "decoders.",
)
