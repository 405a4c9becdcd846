from torch import Tensor

from layerscope.metrics.arrays import Array, as_result
from layerscope.metrics.factors import FromRows, Rows
from layerscope.metrics.metric import Metric


def isotropy(Z: Array | Rows) -> float | Tensor:
    """Return how evenly variance is spread over directions: mean over deviation of the covariance's eigenvalues.

    `Z` is `[..., N, D]`; the value `[...]` lies in 1/sqrt(D - 1) ... infinity, infinite where all D
    directions vary alike. NaN where all rows are equal. LOES without labels takes the one layer
    where it is highest.

    Source: Batra et al. 2026, Uncovering the Latent Potential of Deep Intermediate Representations
    (LOES), as its reference implementation has it.

    >>> round(isotropy(np.array([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])), 3)  # variances 9 and 1
    1.25
    """
    rows = Rows.of(Z)
    values = rows.centred_spectrum
    variances = (values / values[..., :1]).square()
    shares = variances / variances.sum(-1, keepdim=True)
    # of all D eigenvalues, those that the spectrum does not list being 0
    excess = (rows.width * shares.square().sum(-1) - 1).clamp_min(0)
    return as_result(excess.rsqrt())


ISOTROPY = Metric(
    isotropy,
    FromRows(isotropy),
    reading="evenness of the variance over directions",
    formula="mean(λ) / std(λ), λ the eigenvalues of the covariance",
    meaning="Mean of the eigenvalues of the pooled states' covariance over their standard deviation; from "
    "1 / √(width − 1), infinite where all directions vary alike.",
    direction="High: samples differ in all directions alike. LOES, a rule without labels, takes the layer where it is "
    "highest.",
)
