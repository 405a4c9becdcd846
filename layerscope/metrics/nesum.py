from torch import Tensor

from layerscope.metrics.anisotropy import anisotropy
from layerscope.metrics.arrays import Array
from layerscope.metrics.factors import FromRows, Rows
from layerscope.metrics.metric import Metric


def nesum(Z: Array | Rows) -> float | Tensor:
    """Return the sum of the covariance's eigenvalues in units of the largest: sum l / l_1.

    `Z` is `[..., N, D]`; the value `[...]` lies in 1 ... min(N - 1, D), high where variance is
    spread over many directions; it is 1 / `anisotropy`. NaN where all rows are equal.

    Source: He, Ozay 2022, Exploring the Gap between Collapsed and Whitened Features in
    Self-Supervised Learning.

    >>> round(nesum(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])), 3)  # two equal directions
    2.0
    """
    return 1.0 / anisotropy(Z)


NESUM = Metric(
    nesum,
    FromRows(nesum),
    title="NESum",
    reading="directions, in units of the largest",
    formula="Σ λᵢ / λ₁, λ the eigenvalues of the covariance",
    meaning="Sum of the eigenvalues of the pooled states' covariance over the largest: one over anisotropy; from 1 to "
    "min(samples − 1, width).",
    direction="High: variance is spread over many directions.",
)
