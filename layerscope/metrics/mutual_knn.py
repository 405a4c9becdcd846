"""The share of nearest neighbours that two layers have in common, with ties that rounding cannot break.

Samples that are equal are equally near, and which of them counts among the k nearest must not hang
on the last bit of a product. Closeness is therefore rounded to a grid of 2⁻⁴⁰; of samples at the
same distance as the k-th, the first ones fill up what is free. With k = 2:

    closeness     .9   .5   .5   .5   .1
    neighbours    yes  yes  no   no   no
"""

import numpy as np
import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import Array, as_result, check_choice, slices, unit_rows
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs import FromPairs, Measure, Prepared, by_layer, of_pair

_GRID = 2.0**40
"""Closeness has this many steps, so that equal samples tie whatever the rounding."""
_TILE_BYTES = 128 * 2**20


def mutual_knn(
    X: Array, Y: Array, k: int = 10, distance: str = "cosine"
) -> float | Tensor:
    """Return the share of a sample's k nearest neighbours that two descriptions have in common, averaged over samples.

    `X` is `[..., N, D]`, `Y` `[..., N, D']`; nearest by "cosine" or "euclidean" distance of rows as
    they are, the sample itself left out. Of equally near samples (to 1e-12) the first ones count. 0
    ... 1; chance gives k / (N - 1); NaN where all rows of one side are equal. Raises
    `LayerscopeError` for k outside 1 ... N - 1.

    Source: Huh et al. 2024, The Platonic Representation Hypothesis, section 2 and appendix A.

    >>> states = np.random.default_rng(0).normal(size=(50, 3))
    >>> mutual_knn(states, 2 * states, k=5)
    1.0
    """
    return as_result(of_pair(_measure(k, distance), X, Y))


def _measure(k: int = 10, distance: str = "cosine") -> Measure:
    check_choice(distance, "distance", ("cosine", "euclidean"))

    def prepare(rows: Tensor) -> Prepared:
        """Return the neighbours of each row `[..., N, k]` by index, -1 where all rows are equal."""
        count = rows.shape[-2]
        if not 1 <= k < count:
            raise LayerscopeError(
                f"k={k} neighbours among {count} rows do not exist: give k from 1 to {count - 1}"
            )
        points = unit_rows(rows) if distance == "cosine" else rows
        step = max(1, _TILE_BYTES // (8 * count * rows[..., 0, 0].numel()))
        parts = slices(count, step)
        neighbours = [_nearest(points, part, k, distance) for part in parts]
        equal = (rows == rows[..., :1, :]).all((-2, -1))
        every = torch.cat(neighbours, -2)
        return (every.masked_fill(equal[..., None, None], -1),)

    return Measure("mutual kNN", 2, prepare, _shared)


def _shared(first: Prepared, second: Prepared) -> Tensor:
    """Return the share of neighbours `[..., N, k]`, ascending, that two layers have in common, averaged over rows."""
    (ours,) = first
    (theirs,) = second
    shape = np.broadcast_shapes(ours.shape, theirs.shape)
    ours = ours.expand(shape).contiguous()
    theirs = theirs.expand(shape).contiguous()
    places = torch.searchsorted(theirs, ours).clamp(max=ours.shape[-1] - 1)
    is_shared = theirs.gather(-1, places) == ours
    shared = is_shared.double().mean((-2, -1))
    is_equal = (ours[..., 0, 0] < 0) | (theirs[..., 0, 0] < 0)
    return shared.masked_fill(is_equal, torch.nan)


def _nearest(points: Tensor, rows: slice, k: int, distance: str) -> Tensor:
    """Return the k nearest of all points to each of some of them `[..., rows, k]`, by index, ascending."""
    part = points[..., rows, :]
    if distance == "cosine":
        closeness = (part @ points.mT).mul_(_GRID).round_()
    else:
        # from differences: a product of rows would lose the distances between far ones
        exact = "donot_use_mm_for_euclid_dist"
        mantissa, exponent = torch.cdist(part, points, compute_mode=exact).frexp()
        closeness = -torch.ldexp(mantissa.mul_(_GRID).round_(), exponent)
    # a sample is no neighbour of itself
    closeness.diagonal(rows.start, -2, -1).fill_(-torch.inf)
    least = closeness.topk(k, dim=-1).values[..., -1:]
    nearer = closeness > least
    level = closeness == least
    # Those at the same distance as the last neighbour fill up in order.
    free = k - nearer.sum(-1, keepdim=True)
    chosen = nearer | (level & (level.cumsum(-1) <= free))
    return chosen.nonzero()[:, -1].reshape(*part.shape[:-1], k)


MUTUAL_KNN = Metric(
    mutual_knn,
    FromPairs(by_layer(_measure), "cosine,k=10", least=11),
    title="mutual kNN",
    reading="share of common nearest neighbours",
    formula="mean of |Nₖ(xᵢ) ∩ Nₖ(yᵢ)| / k, Nₖ the k = 10 nearest by cosine",
    meaning="Share of a sample's 10 nearest neighbours by cosine that two layers have in common, averaged over "
    "samples; from 0 to 1, 10 / (N − 1) by chance.",
    direction="1: retrieval finds the same samples in both layers.",
)
