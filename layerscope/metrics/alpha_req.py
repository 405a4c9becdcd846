import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.arrays import Array, as_finite64, as_result, centred
from layerscope.metrics.spectrum import singular_values

FIT = (10, 100)
"""Ranks that the line is fitted on, as published."""


def alpha_req(Z: Array, fit: tuple[int, int] = FIT) -> float | Tensor:
    """Return the exponent alpha of the power law l_i ~ i^-alpha that the covariance's eigenvalues follow.

    `Z` is `[..., N, D]`. log l is fitted by a line in log i over the ranks `fit` (from 1, both ends
    included, cut to the min(N - 1, D) that there are), each rank weighted 1 / i so that every stretch of the
    logarithmic axis counts alike. The value `[...]` is above 0 for a spectrum that falls; a low one means
    variance in many directions. Eigenvalues below float64's rounding of the largest are left out, and the
    value is NaN where fewer than two are left. Float64. Raises `LayerscopeError` for non-finite input and a
    `fit` that holds fewer than two ranks.

    Source: Agrawal et al. 2022, alpha-ReQ; the weighted fit as in Stringer et al. 2019.
    """
    rows = centred(as_finite64(Z, "Z"))
    return as_result(power_law(singular_values(rows), rows.shape[-2], fit))


def fitted_ranks(count: int, width: int, fit: tuple[int, int]) -> tuple[int, int]:
    """Return the first and last rank that `alpha_req` fits with `count` samples of `width` features."""
    return fit[0], min(fit[1], count - 1, width)


def power_law(values: Tensor, count: int, fit: tuple[int, int] = FIT) -> Tensor:
    """Return `alpha_req` `[...]` of the singular values `[..., K]`, descending, of `count` centred rows of K or more.

    Raises `LayerscopeError` for a `fit` that holds fewer than two ranks.
    """
    first, last = fitted_ranks(count, values.shape[-1], fit)
    if first < 1 or last <= first:
        there = min(count - 1, values.shape[-1])
        raise LayerscopeError(
            f"fit={tuple(fit)} holds fewer than two of the {there} ranks there are: give ranks within 1 ... {there}"
        )
    rounding = torch.finfo(values.dtype).eps * max(count, values.shape[-1]) * values[..., :1]
    chosen = values[..., first - 1 : last]
    known = chosen > rounding
    ranks = torch.arange(first, last + 1, dtype=values.dtype, device=values.device)
    weights = known / ranks
    x, y = ranks.log().expand_as(chosen), 2.0 * chosen.masked_fill(~known, 1.0).log()
    total = weights.sum(-1, keepdim=True)
    dx = x - (weights * x).sum(-1, keepdim=True) / total
    # Below two ranks the line has no slope: 0 / 0.
    slope: Tensor = -(weights * dx * y).sum(-1) / (weights * dx.square()).sum(-1)
    return slope.masked_fill(known.sum(-1) < 2, torch.nan)
