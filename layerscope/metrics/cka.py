import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.arrays import Array, as_pair64, as_result, centred, check_choice
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs.blocks import States
from layerscope.metrics.pairs.linear_cka import hsic, linear_cka
from layerscope.metrics.pairs.similarity import FromPairs, Measure, Prepared, every_two, of_pair

__all__ = ["cka", "cka_minibatch"]

BANDWIDTHS = ("median_sq_offdiag", "median_sq_all", "median_distance")


def cka(
    X: Array, Y: Array, kernel: str = "linear", debiased: bool = True, bandwidth: str | float = "median_sq_offdiag"
) -> float | Tensor:
    """Return the centred kernel alignment of two descriptions of the same samples.

    `X` is `[..., N, D]`, `Y` `[..., N, D']`; columns are centred first. The biased form lies in 0 ... 1 and is near 1
    for independent noise where D is far above N; the debiased one (ratio of HSIC_1) is near 0 there, may be slightly
    negative and is not clamped. NaN where one side does not vary. The "rbf" kernel is exp(-|x - x'|^2 / (2 sigma^2)),
    with sigma^2 the median squared distance of distinct samples ("median_sq_offdiag"), the same with each sample to
    itself ("median_sq_all"), or the squared median distance ("median_distance"), each side having its own; a number is
    sigma itself, and a median of 0 gives NaN. Raises `LayerscopeError` for N < 4.

    Source: Kornblith et al. 2019 (biased; Tracing Representation Progression, equation 3); HSIC_1 of Song et al. 2012
    as in Nguyen et al. 2021, equation 3.

    >>> from layerscope.metrics import cka
    >>> states = np.random.default_rng(0).normal(size=(50, 3))
    >>> round(cka(states, -2 * states), 3)  # rotations, reflections and scale do not count
    1.0
    """
    return as_result(of_pair(_measure(kernel, debiased, bandwidth), X, Y))


def cka_minibatch(X: Array, Y: Array, batch_size: int) -> float | Tensor:
    """Return the minibatch estimate of linear CKA: HSIC_1 summed over consecutive batches, then the ratio.

    `X` is `[..., N, D]`, `Y` `[..., N, D']`. It is another estimator than `cka` of all rows, and not the mean of the
    batches' CKA. Not clamped. Raises `LayerscopeError` for a batch, the last one included, of fewer than 4 rows.

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
    cross = own_x = own_y = torch.zeros((), dtype=torch.float64, device=first.device)
    for x, y in zip(torch.split(first, batch_size, -2), torch.split(second, batch_size, -2), strict=True):
        x, y = centred(x), centred(y)
        cross = cross + _linear_hsic(x, y, True)
        own_x, own_y = own_x + _linear_hsic(x, x, True), own_y + _linear_hsic(y, y, True)
    return as_result(cross / (own_x * own_y).sqrt())


def _measure(kernel: str = "linear", debiased: bool = True, bandwidth: str | float = "median_sq_offdiag") -> Measure:
    check_choice(kernel, "kernel", ("linear", "rbf"))
    if isinstance(bandwidth, str):
        check_choice(bandwidth, "bandwidth", BANDWIDTHS)
    elif not bandwidth > 0:
        raise LayerscopeError(f"bandwidth={bandwidth} is not above 0: give sigma, or one of {BANDWIDTHS}")
    inner = _linear_hsic if kernel == "linear" else _gram_hsic

    def prepare(rows: Tensor) -> Prepared:
        found = centred(rows)
        found = found if kernel == "linear" else _double_centred(_rbf_gram(found, bandwidth))
        return found, inner(found, found, debiased)

    def between(first: Prepared, second: Prepared) -> Tensor:
        (k, own_k), (m, own_m) = first, second
        return inner(k, m, debiased) / (own_k * own_m).sqrt()

    return Measure("CKA", 4, prepare, between)


def _linear_hsic(x: Tensor, y: Tensor, debiased: bool) -> Tensor:
    """Return HSIC of centred rows through the cheaper of the N x N Grams and the D x D' features."""
    count = x.shape[-2]
    if count * (x.shape[-1] + y.shape[-1]) < x.shape[-1] * y.shape[-1]:
        return _gram_hsic(x @ x.mT, y @ y.mT, debiased)
    inner = (x.mT @ y).square().sum((-2, -1))
    if not debiased:
        return inner
    norms_x, norms_y = x.square().sum(-1), y.square().sum(-1)
    return hsic(inner, torch.linalg.vecdot(norms_x, norms_y), norms_x.sum(-1), norms_y.sum(-1), count)


def _gram_hsic(k: Tensor, m: Tensor, debiased: bool) -> Tensor:
    """Return HSIC of Grams with row sums of zero."""
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
    measure = _measure(kernel, debiased, bandwidth)
    return linear_cka(states, others, debiased) if kernel == "linear" else every_two(measure, states, others)


CKA = Metric(
    cka,
    FromPairs(_matrix, "linear,debiased", least=4, all_samples=True),
    title="CKA",
    reading="1: two layers hold the same geometry",
    meaning="Centred kernel alignment of two layers, linear kernel, debiased: how alike the samples lie to each "
    "other, whatever the rotation and scale; at most 1, near 0 (or slightly below) for unrelated layers.",
    direction="1: the two layers hold the same geometry of samples.",
    order=1,
)
CKA_RBF = Metric(
    cka,
    FromPairs(_matrix, "rbf,debiased,median_sq_offdiag", {"kernel": "rbf"}, least=4),
    name="cka_rbf",
    title="RBF CKA",
    reading="1: two layers hold the same neighbourhoods",
    meaning="Centred kernel alignment with a Gaussian kernel as wide as the median distance, debiased: how alike near "
    "samples lie to each other; at most 1, near 0 (or slightly below) for unrelated layers.",
    direction="1: the two layers hold the same geometry of samples. Far samples count less than in linear CKA.",
    default=False,
    order=3,
)
