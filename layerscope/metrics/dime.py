from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import Array, as_pair64, as_result
from layerscope.metrics.factors import FromViews, Views
from layerscope.metrics.metric import Metric
from layerscope.metrics.spectrum import check_alpha, entropies

Permutations = int | np.integer | npt.NDArray[np.integer] | Tensor
PERMUTATIONS = 10


def dime(
    a: Array,
    b: Array,
    alpha: float = 1.0,
    permutations: Permutations = PERMUTATIONS,
    seed: int = 0,
) -> float | Tensor:
    """Return how much more two views share when paired rightly than when paired at random.

    `a` and `b` are `[..., N, D]` (D may differ), row i of both being one sample. With K the N x N
    Grams of unit rows and o the elementwise product, it is the mean over permutations P of
    S_alpha(K_a o P K_b P^T), minus S_alpha(K_a o K_b). `permutations` is a number drawn from PCG64
    with `seed`, or index rows `[P, N]`. The value `[...]` is in nats, above 0 where true pairs
    share more; it depends on N.

    Source: Skean et al. 2023, DiME; Skean et al. 2025, Layer by Layer, section 3.

    >>> states = np.random.default_rng(0).normal(size=(50, 3))
    >>> dime(states, states) > 0
    True
    """
    check_alpha(alpha)
    first, second = as_pair64(a, b, ("a", "b"))
    lead = first.shape[:-2]
    if second.shape[:-2] != lead:
        raise LayerscopeError(
            f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}: give equal leading dimensions"
        )
    values = []
    items = first.reshape(-1, *first.shape[-2:]), second.reshape(-1, *second.shape[-2:])
    for x, y in zip(*items, strict=True):
        values.append(_difference(Views(x, y, seed), alpha, permutations))
    return as_result(torch.stack(values).reshape(lead))


def _difference(
    views: Views, alpha: float, permutations: Permutations = PERMUTATIONS
) -> Tensor:
    """Return the mean entropy of Grams that are paired at random, less that of the right pairing."""
    gram_a, gram_b = views.grams
    orders = _orders(permutations, len(gram_a), views.seed).to(gram_a.device)
    paired = torch.arange(len(gram_b), device=gram_b.device)
    joint = []
    # As many joint Grams at a time as there are threads for their eigenvalues: all of them would
    # take N x N each.
    for some in torch.split(torch.cat([paired[None], orders]), torch.get_num_threads()):
        joint += entropies([gram_a * gram_b[order][:, order] for order in some], alpha)
    return torch.stack(joint[1:]).mean() - joint[0]


def _orders(permutations: Permutations, count: int, seed: int) -> Tensor:
    """Return permutations of `count` samples as rows of indices `[P, count]`, drawn where a number is given."""
    if isinstance(permutations, (int, np.integer)):
        if permutations < 1:
            raise LayerscopeError(f"permutations={permutations}: give at least 1")
        draw = np.random.default_rng(seed)
        return torch.from_numpy(
            np.stack([draw.permutation(count) for _ in range(int(permutations))])
        )
    orders = torch.as_tensor(permutations).long()
    every = torch.arange(count, device=orders.device)
    fits = orders.ndim == 2 and len(orders) > 0 and orders.shape[1] == count
    if not fits or not (orders.sort(-1).values == every).all():
        raise LayerscopeError(
            f"permutations of shape {tuple(orders.shape)} are not rows that reorder 0 ... {count - 1}: "
            "give an integer array [P, N] of index permutations, or their number"
        )
    return orders


DIME = Metric(
    dime,
    FromViews(_difference, orders=True, rough=partial(_difference, permutations=1)),
    title="DiME",
    unit="nats",
    reading="nats; high: true pairs share more than random ones",
    formula="mean over P of S_α(K_a ∘ P K_b Pᵀ) − S_α(K_a ∘ K_b), K = Z Zᵀ, Z a view of all samples at unit length, P "
    "ten random permutations, S_α the entropy of the eigenvalues scaled to sum 1",
    meaning="Difference of matrix-based entropies: joint entropy of samples with randomly permuted views minus that "
    "with their own views.",
    direction="Above 0: true pairs share more than random ones. Its relation to task scores changes sign with the "
    "corpus.",
)
