import torch
from torch import Tensor

from layerscope.metrics.arrays import (
    Array,
    above_diagonal,
    as_result,
    centred,
    check_choice,
    unit_rows,
)
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs import FromPairs, Measure, Prepared, by_layer, of_pair

_GRID = 2.0**44
"""Dissimilarities are whole multiples of 1 over this, so that equal samples give equal ones whatever the rounding."""


def rsa(
    X: Array, Y: Array, rdm: str = "correlation", compare: str = "spearman"
) -> float | Tensor:
    """Return the correlation between the dissimilarities of every two samples in two descriptions.

    `X` is `[..., N, D]`, `Y` `[..., N, D']`. The dissimilarity of two samples is 1 minus the
    Pearson correlation of their rows ("correlation") or 1 minus the cosine of them ("cosine"),
    columns not centred; a row without a direction is 1 from every other. The N (N - 1) / 2 of each
    are compared by "spearman", ties sharing their mean rank, or "pearson": -1 ... 1, NaN where all
    are equal. Raises `LayerscopeError` for N < 3.

    Source: Kriegeskorte et al. 2008, Representational Similarity Analysis.

    >>> states = np.random.default_rng(0).normal(size=(50, 3))
    >>> round(rsa(states, 2 * states), 3)
    1.0
    """
    return as_result(of_pair(_measure(rdm, compare), X, Y))


def _measure(rdm: str = "correlation", compare: str = "spearman") -> Measure:
    from scipy.stats import rankdata

    check_choice(rdm, "rdm", ("correlation", "cosine"))
    check_choice(compare, "compare", ("spearman", "pearson"))

    def prepare(rows: Tensor) -> Prepared:
        """Return the upper half of the dissimilarities as a vector, or its ranks, centred and of unit size."""
        if rdm == "correlation":
            # A row is centred as columns are elsewhere: one of equal features is exactly zero.
            rows = centred(rows.mT).mT
        unit = unit_rows(rows)
        cosines = unit @ unit.mT
        distances = (1.0 - above_diagonal(cosines)).mul_(_GRID).round_()
        if compare == "spearman":
            ranks = rankdata(distances.cpu().numpy(), axis=-1)
            distances = torch.from_numpy(ranks).to(rows.device)
        around = distances - distances.mean(-1, keepdim=True)
        return (around / torch.linalg.vector_norm(around, dim=-1, keepdim=True),)

    return Measure(
        "RSA", 3, prepare, lambda a, b: torch.linalg.vecdot(a[0], b[0]).clamp(-1.0, 1.0)
    )


RSA = Metric(
    rsa,
    FromPairs(by_layer(_measure), "correlation,spearman", least=3),
    title="RSA",
    reading="1: the same pairs of samples are far apart",
    formula="Spearman's ρ of 1 − corr(xᵢ, xⱼ) and 1 − corr(yᵢ, yⱼ) over all i < j",
    meaning="Spearman correlation between the dissimilarities (1 minus the correlation of rows) of every two samples "
    "in two layers; from −1 to 1.",
    direction="1: two layers order pairs of samples by distance in the same way.",
)
