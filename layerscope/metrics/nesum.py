from torch import Tensor

from layerscope.metrics.anisotropy import first_share
from layerscope.metrics.arrays import Array, as_finite64, as_result, centred
from layerscope.metrics.spectrum import singular_values


def nesum(Z: Array) -> float | Tensor:
    """Return the sum of the covariance's eigenvalues in units of the largest: sum l / l_1.

    `Z` is `[..., N, D]`; the value `[...]` lies in 1 ... min(N - 1, D), high where variance is spread over
    many directions; it is 1 / `anisotropy`. NaN where all rows are equal. Float64. Raises
    `LayerscopeError` for non-finite input.

    Source: He and Ozay 2022, Exploring the gap between collapsed and whitened features.
    """
    return as_result(1.0 / first_share(singular_values(centred(as_finite64(Z, "Z")))))
