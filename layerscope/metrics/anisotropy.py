from torch import Tensor

from layerscope.metrics.arrays import Array, as_finite64, as_result, centred
from layerscope.metrics.spectrum import singular_values


def anisotropy(Z: Array) -> float | Tensor:
    """Return the share of the variance that lies in one direction: s_1^2 / sum s^2 of the centred rows.

    `Z` is `[..., N, D]`; the value `[...]` lies in 1/min(N - 1, D) ... 1, high where the rows spread along a
    line. NaN where all rows are equal and nothing varies. Float64. Raises `LayerscopeError` for non-finite
    input.

    Source: Razzhigaev et al. 2024, The Shape of Learning.
    """
    return as_result(first_share(singular_values(centred(as_finite64(Z, "Z")))))


def first_share(values: Tensor) -> Tensor:
    """Return s_1^2 / sum s^2 `[...]` of singular values `[..., K]` in descending order; 0 / 0 is NaN."""
    # The largest is taken out first, so that no square overflows or vanishes.
    relative = values / values[..., :1]
    share: Tensor = 1.0 / relative.square().sum(-1)
    return share
