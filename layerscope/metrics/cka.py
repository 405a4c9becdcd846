from dataclasses import dataclass

import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.arrays import Array, as_pair64, as_result, centred, check_choice
from layerscope.metrics.measure import Measure, Prepared, of_pair
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs.blocks import States
from layerscope.metrics.pairs.hsic import check_rows, hsic
from layerscope.metrics.pairs.linear_cka import linear_cka
from layerscope.metrics.pairs.prepared import every_two
from layerscope.metrics.pairs.similarity import FromPairs

__all__ = ["cka", "cka_minibatch"]

BANDWIDTHS = ("median_sq_offdiag", "median_sq_all", "median_distance")


def cka(
    X: Array,
    Y: Array,
    kernel: str = "linear",
    debiased: bool = True,
    bandwidth: str | float = "median_sq_offdiag",
) -> float | Tensor:
    """Return the centred kernel alignment of two descriptions of the same samples.

    `X` is `[..., N, D]`, `Y` `[..., N, D']`; N >= 4. The biased form lies in 0 ... 1 and is near 1 for
    independent noise where D is far above N; the debiased one (ratio of HSIC_1) is near 0 there, may be
    slightly negative and is not clamped. NaN where one side does not vary. The "rbf" kernel is exp(-|x -
    x'|^2 / (2 sigma^2)), with sigma^2 the median squared distance of distinct samples
    ("median_sq_offdiag"), the same with each sample to itself ("median_sq_all"), or the squared median
    distance ("median_distance"), each side having its own; a number is sigma itself, and a median of 0
    gives NaN. Columns are centred first, in float64. Raises `LayerscopeError` for non-finite input,
    unequal or small N.

    Source: Kornblith et al. 2019 (biased; Tracing Representation Progression, equation 3); HSIC_1 of Song et
    al. 2012 as in Nguyen et al. 2021, equation 3.

    >>> from layerscope.metrics import cka
    >>> states = np.random.default_rng(0).normal(size=(50, 3))
    >>> round(cka(states, -2 * states), 3)  # rotations, reflections and scale do not count
    1.0
    """
    check_choice(kernel, "kernel", ("linear", "rbf"))
    if kernel == "rbf":
        return as_result(of_pair(RbfCka(debiased, bandwidth), X, Y))
    first, second = as_pair64(X, Y, ("X", "Y"))
    check_rows(first.shape[-2])
    first, second = centred(first), centred(second)
    return as_result(_ratio(*(_linear_hsic(k, m, debiased) for k, m in _pairs(first, second))))


def cka_minibatch(X: Array, Y: Array, batch_size: int) -> float | Tensor:
    """Return the minibatch estimate of linear CKA: HSIC_1 summed over consecutive batches, then the ratio.

    `X` is `[..., N, D]`, `Y` `[..., N, D']`. It is another estimator than `cka` of all rows, and not the
    mean of the batches' CKA. Not clamped. Float64. Raises `LayerscopeError` for non-finite input, unequal
    N, and a batch, the last one included, of fewer than 4 rows.

    Source: Nguyen et al. 2021, Do wide and deep networks learn the same things?, equations 2 and 3.

    >>> from layerscope.metrics import cka_minibatch
    >>> states = np.random.default_rng(0).normal(size=(50, 3))
    >>> round(cka_minibatch(states, -2 * states, batch_size=10), 3)
    1.0
    """
    first, second = as_pair64(X, Y, ("X", "Y"))
    count = first.shape[-2]
    smallest = min(batch_size, count % batch_size or batch_size) if batch_size > 0 else 0
    if smallest < 4 or count < 4:
        raise LayerscopeError(
            f"batch_size={batch_size} leaves a batch of {min(smallest, count)} out of {count} rows: "
            "choose a size with at least 4 rows in each batch"
        )
    sums = [torch.zeros((), dtype=torch.float64, device=first.device)] * 3
    for low in range(0, count, batch_size):
        batch = slice(low, low + batch_size)
        pairs = _pairs(centred(first[..., batch, :]), centred(second[..., batch, :]))
        sums = [total + _linear_hsic(k, m, True) for total, (k, m) in zip(sums, pairs, strict=True)]
    return as_result(_ratio(*sums))


@dataclass(frozen=True)
class RbfCka(Measure):
    """Double-centred Grams of the Gaussian kernel."""

    debiased: bool = True
    bandwidth: str | float = "median_sq_offdiag"

    def __post_init__(self) -> None:
        """Check the bandwidth."""
        if isinstance(self.bandwidth, str):
            check_choice(self.bandwidth, "bandwidth", BANDWIDTHS)
        elif not self.bandwidth > 0:
            raise LayerscopeError(f"bandwidth={self.bandwidth} is not above 0: give sigma, or one of {BANDWIDTHS}")

    def prepare(self, rows: Tensor) -> Prepared:
        """Return the Gram with row sums of zero, and its HSIC with itself."""
        check_rows(rows.shape[-2])
        gram = _double_centred(_rbf_gram(centred(rows), self.bandwidth))
        return gram, _centred_gram_hsic(gram, gram, self.debiased)

    def between(self, first: Prepared, second: Prepared) -> Tensor:
        """Return the ratio of HSIC."""
        (k, own_k), (m, own_m) = first, second
        return _ratio(_centred_gram_hsic(k, m, self.debiased), own_k, own_m)


def _pairs(x: Tensor, y: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
    return (x, y), (x, x), (y, y)


def _ratio(cross: Tensor, own_x: Tensor, own_y: Tensor) -> Tensor:
    return cross / (own_x * own_y).sqrt()


def _linear_hsic(x: Tensor, y: Tensor, debiased: bool) -> Tensor:
    """Return HSIC of centred rows through the cheaper of the N x N Grams and the D x D' features."""
    count = x.shape[-2]
    if count * (x.shape[-1] + y.shape[-1]) < x.shape[-1] * y.shape[-1]:
        return _centred_gram_hsic(x @ x.mT, y @ y.mT, debiased)
    inner = (x.mT @ y).square().sum((-2, -1))
    if not debiased:
        return inner
    norms_x, norms_y = x.square().sum(-1), y.square().sum(-1)
    return hsic(inner, torch.linalg.vecdot(norms_x, norms_y), norms_x.sum(-1), norms_y.sum(-1), count)


def _centred_gram_hsic(k: Tensor, m: Tensor, debiased: bool) -> Tensor:
    inner: Tensor = torch.linalg.vecdot(k.flatten(-2), m.flatten(-2))
    if not debiased:
        return inner
    own_k, own_m = k.diagonal(dim1=-2, dim2=-1), m.diagonal(dim1=-2, dim2=-1)
    return hsic(inner, torch.linalg.vecdot(own_k, own_m), own_k.sum(-1), own_m.sum(-1), k.shape[-1])


def _double_centred(gram: Tensor) -> Tensor:
    means = gram.mean(-1, keepdim=True)
    return gram - means - means.mT + means.mean(-2, keepdim=True)


def _rbf_gram(rows: Tensor, bandwidth: str | float) -> Tensor:
    norms = rows.square().sum(-1)
    squared = (norms[..., :, None] + norms[..., None, :] - 2 * rows @ rows.mT).clamp(min=0.0)
    squared.diagonal(dim1=-2, dim2=-1).zero_()
    return torch.exp(-squared / (2 * _sigma_squared(squared, bandwidth)[..., None, None]))


def _sigma_squared(squared: Tensor, bandwidth: str | float) -> Tensor:
    if not isinstance(bandwidth, str):
        return squared.new_full(squared.shape[:-2], float(bandwidth) ** 2)
    if bandwidth == "median_sq_all":
        return _median(squared.flatten(-2))
    above = torch.ones(squared.shape[-2:], dtype=torch.bool, device=squared.device).triu(1)
    distinct = squared[..., above]
    if bandwidth == "median_sq_offdiag":
        return _median(distinct)
    return _median(distinct.sqrt()).square()


def _median(values: Tensor) -> Tensor:
    """Return the median with the mean of the two middle values, where torch takes the lower one."""
    count = values.shape[-1]
    upper = values.kthvalue(count // 2 + 1).values
    return upper if count % 2 else (values.kthvalue(count // 2).values + upper) / 2


def _matrix(
    states: States,
    others: States | None,
    kernel: str = "linear",
    debiased: bool = True,
    bandwidth: str | float = "median_sq_offdiag",
) -> Tensor:
    check_choice(kernel, "kernel", ("linear", "rbf"))
    if kernel == "rbf":
        return every_two(RbfCka(debiased, bandwidth), states, others)
    return linear_cka(states, others, debiased)


CKA = Metric(
    name="cka",
    how=FromPairs(_matrix, "linear,debiased", least=4, all_samples=True),
    title="CKA",
    reading="1: two layers hold the same geometry",
    meaning="Centred kernel alignment of two layers, linear kernel, debiased: how alike the samples lie to each "
    "other, whatever the rotation and scale; at most 1, near 0 (or slightly below) for unrelated layers.",
    direction="1: the two layers hold the same geometry of samples.",
    source="Kornblith et al. 2019; debiased as in Song et al. 2012",
    order=1,
)


CKA_RBF = Metric(
    name="cka_rbf",
    how=FromPairs(_matrix, "rbf,debiased,median_sq_offdiag", {"kernel": "rbf"}, least=4),
    title="RBF CKA",
    reading="1: two layers hold the same neighbourhoods",
    meaning="Centred kernel alignment with a Gaussian kernel as wide as the median distance, debiased: how alike near "
    "samples lie to each other; at most 1, near 0 (or slightly below) for unrelated layers.",
    direction="1: the two layers hold the same geometry of samples. Far samples count less than in linear CKA.",
    source="Kornblith et al. 2019; debiased as in Song et al. 2012",
    default=False,
    order=3,
)
