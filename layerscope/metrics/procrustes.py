import torch
from torch import Tensor

from layerscope.metrics.arrays import Array, as_result, centred, check_choice
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs import (
    FromPairs,
    Measure,
    Prepared,
    by_layer,
    narrow,
    of_pair,
)


def procrustes(X: Array, Y: Array, kind: str = "similarity") -> float | Tensor:
    """Return how well a rotation lays one description of the samples over the other, both centred and of unit size.

    `X` is `[..., N, D]`, `Y` `[..., N, D']` (the narrower one stands for itself with columns of
    zeros). With c = |X^T Y|_* / (|X|_F |Y|_F), the nuclear norm over the sizes, "similarity" is c,
    0 ... 1, and "distance" sqrt(2 - 2 c), 0 at best. Reflections are allowed. NaN where one side does not vary. Raises
    `LayerscopeError` for N < 2.

    Source: Schönemann 1966; Williams et al. 2021, Generalized shape metrics; Ding et al. 2021.

    >>> states = np.random.default_rng(0).normal(size=(50, 3))
    >>> round(procrustes(states, states[:, [2, 0, 1]]), 3)  # columns in another order are a rotation
    1.0
    """
    return as_result(of_pair(_measure(kind), X, Y))


def _measure(kind: str = "similarity") -> Measure:
    check_choice(kind, "kind", ("similarity", "distance"))

    def between(first: Prepared, second: Prepared) -> Tensor:
        a, known_a = first
        b, known_b = second
        overlap: Tensor = (
            torch.linalg.svdvals(a.mT @ b).sum(-1).clamp(max=1.0) * known_a * known_b
        )
        distance: Tensor = (2.0 - 2.0 * overlap).sqrt()
        return overlap if kind == "similarity" else distance

    return Measure("Procrustes", 2, _sized, between)


def _sized(rows: Tensor) -> Prepared:
    """Return the rows centred and of unit size, and NaN for what has no size, 1 for the rest."""
    around = narrow(centred(rows))
    size = torch.linalg.matrix_norm(around)
    none = size == 0
    scaled = around / size.masked_fill(none, 1.0)[..., None, None]
    return scaled, torch.ones_like(size).masked_fill(none, torch.nan)


PROCRUSTES = Metric(
    procrustes,
    FromPairs(by_layer(_measure), "similarity"),
    title="Procrustes",
    reading="1: a rotation turns one layer into the other",
    formula="‖Xᵀ Y‖_* / (‖X‖_F ‖Y‖_F), X and Y centred",
    meaning="Nuclear norm of the product of two layers, both centred and of unit size: how well the best rotation "
    "lays one over the other; from 0 to 1.",
    direction="1: the two layers are the same but for a rotation and a scale.",
)
