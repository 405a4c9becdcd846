import math

import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import Array, as_finite64, as_result, slices
from layerscope.metrics.factors import FromRows, Rows
from layerscope.metrics.metric import Metric

DISCARD = 0.1
"""As published."""
TILE = 1024
"""Rows whose distances to all others are in memory at a time."""


def intrinsic_dimension(Z: Array, discard: float = DISCARD) -> float | Tensor:
    """Return the dimension of the manifold the rows lie on, by TwoNN: from the two nearest neighbours of each row.

    `Z` is `[..., N, D]`. On a d-dimensional manifold the ratio mu of a row's second to first
    neighbour distance has F(mu) = 1 - mu^-d; d is the slope through the origin of -log(1 - F) on
    log mu, with the share `discard` of the largest ratios left out (and always the very last, whose
    F is 1). Equal rows count once, so that no distance is zero. The value `[...]` is above 0; NaN
    where fewer than three different rows remain, or all ratios are 1, as on a grid. Raises
    `LayerscopeError` unless 0 <= discard < 1.

    Source: Facco et al. 2017, Estimating the intrinsic dimension by a minimal neighborhood
    information.

    >>> plane = np.random.default_rng(0).normal(size=(500, 2)) @ np.random.default_rng(1).normal(size=(2, 10))
    >>> round(intrinsic_dimension(plane), 1)
    1.9
    """
    rows = as_finite64(Z, "Z")
    values = [_dimension(Rows(z), discard) for z in rows.reshape(-1, *rows.shape[-2:])]
    return as_result(torch.stack(values).reshape(rows.shape[:-2]))


def _dimension(rows: Rows, discard: float = DISCARD) -> Tensor:
    """Return the dimension of rows `[N, D]`: the slope of −log(1 − F) on log mu."""
    if not 0 <= discard < 1:
        raise LayerscopeError(
            f"discard={discard} is not a share to leave out: give 0 or more, less than 1"
        )
    ratios = _ratios(rows.rows).sort().values
    kept = min(math.ceil(len(ratios) * (1 - discard)), len(ratios) - 1)
    if kept < 1:
        return ratios.new_tensor(math.nan)
    x = ratios[:kept].log()
    ranks = torch.arange(1, kept + 1, dtype=x.dtype, device=x.device)
    y = -torch.log1p(-ranks / len(ratios))
    slope = (x * y).sum() / x.square().sum()
    return slope.masked_fill(~torch.isfinite(slope), torch.nan)


def _ratios(states: Tensor) -> Tensor:
    """Return the ratio of second to first neighbour distance of every different row.

    There are none below three of them.
    """
    rows: Tensor = torch.unique(states + 0.0, dim=0)  # minus zero is zero
    if len(rows) < 3:
        return rows.new_empty(0)
    # Far from zero, products of rows would lose the distances between them.
    rows = rows - rows.mean(0)
    norms = rows.square().sum(1)
    ratios = []
    for tile in slices(len(rows), TILE):
        part = rows[tile]
        squared = norms - 2.0 * (part @ rows.mT)  # the row's own norm changes no order
        squared.diagonal(tile.start).fill_(torch.inf)
        nearest = squared.topk(2, 1, largest=False).indices
        # The products find the nearest; the distances to them are taken without their rounding.
        offsets = part[:, None] - rows[nearest]
        distances = torch.linalg.vector_norm(offsets, dim=2)
        first, second = distances.sort(1).values.unbind(1)
        ratios.append(second / first)
    return torch.cat(ratios)


INTRINSIC_DIMENSION = Metric(
    intrinsic_dimension,
    FromRows(_dimension, variant=lambda rows: f"discard={DISCARD:g}", of_sums=False),
    unit="dimensions",
    reading="dimensions of the surface the samples lie on",
    formula="Σ xᵢ yᵢ / Σ xᵢ², xᵢ = log μᵢ, yᵢ = −log(1 − i / N), μ = r₂ / r₁ in ascending order, the largest tenth "
    "left out, r₁ and r₂ the distances to the two nearest neighbours",
    meaning="TwoNN: from how much farther than its nearest neighbour a sample's second neighbour lies, over all "
    "samples, the tenth with the largest ratios left out; above 0.",
    direction="High: locally, samples vary in more directions. It may be far below the effective rank, which counts "
    "the directions of the whole cloud.",
)
