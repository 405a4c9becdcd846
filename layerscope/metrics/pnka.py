import torch
from torch import Tensor

from layerscope.metrics.arrays import Array, centred, directions, typical_norm
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs import (
    FromPairs,
    Measure,
    Prepared,
    by_layer,
    narrow,
    of_pair,
)


def pnka(X: Array, Y: Array) -> Tensor:
    """Return how alike two descriptions place each sample among the others, one value `[..., N]` a sample.

    `X` is `[..., N, D]`, `Y` `[..., N, D']`. With K = X X^T and L = Y Y^T of centred columns, it is
    the cosine between row i of K and row i of L, itself included: -1 ... 1, near 1 where sample i
    has the same neighbours, and NaN for a sample at the mean of all, up to float32's rounding of
    the vectors' typical norm. It takes two samples or more.

    Source: Kolling et al. 2023, Pointwise Representational Similarity.

    >>> states = np.random.default_rng(0).normal(size=(50, 3))
    >>> pnka(states, 2 * states)[:3].round(decimals=3)
    tensor([1., 1., 1.], dtype=torch.float64)
    """
    return of_pair(_measure(), X, Y)


def _measure() -> Measure:
    return Measure("PNKA", 2, _prepared, _cosines)


def _prepared(rows: Tensor) -> Prepared:
    """Return rows centred, and the same divided by the norms of their Gram's rows: no Gram is needed."""
    around = centred(rows)
    still = directions(around, typical_norm(rows))[..., 0].isnan()
    around = narrow(around)
    # |X x_i| = |R x_i| for X = Q R, which loses nothing to squaring.
    factor = torch.linalg.qr(around, mode="r").R
    norms = torch.linalg.vector_norm(around @ factor.mT, dim=-1).masked_fill(
        still, torch.nan
    )
    return around, around / norms[..., None]


def _cosines(first: Prepared, second: Prepared) -> Tensor:
    a, unit_a = first
    b, unit_b = second
    cosines: Tensor = torch.linalg.vecdot(unit_a @ (a.mT @ b), unit_b)
    return cosines.clamp(-1.0, 1.0)


PNKA = Metric(
    pnka,
    FromPairs(by_layer(_measure), "centered"),
    title="PNKA",
    reading="1: every sample has the same neighbours in both layers",
    formula="mean of Kᵢ · Lᵢ / (‖Kᵢ‖ ‖Lᵢ‖), the rows of K = X Xᵀ and L = Y Yᵀ, X and Y centred",
    meaning="Cosine between the rows of the two centred Gram matrices that belong to one sample, averaged over "
    "samples; from −1 to 1.",
    direction="1: every sample is as near to the others in one layer as in the other.",
)
