"""Centred kernel alignment: of two arrays, of batches, and of every two layers at once.

It is HSIC(K, L) / √(HSIC(K, K) HSIC(L, L)) of two Grams K and L of the same samples. With a linear
kernel the inner product of K = X Xᵀ and L = Y Yᵀ is also |Xᵀ Y|², a product of features: of N
samples and D features the one takes N × N numbers, the other D × D, and the cheaper one is taken.
The unbiased HSIC_1 needs beside the inner product only the diagonals of K and L, the squared norms
of the rows.

Of every two layers of a run, blocks of samples are read (`layer_products`), so that neither N × N
nor all states must fit into memory.
"""

from functools import partial

import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import (
    Array,
    above_diagonal,
    as_pair64,
    as_result,
    centred,
    check_choice,
    slices,
)
from layerscope.metrics.blocks import States, opened
from layerscope.metrics.layer_products import inner_products
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs import (
    DEBIASING,
    FromPairs,
    Measure,
    Prepared,
    check_count,
    every_two,
    of_pair,
)

BANDWIDTHS = ("median_sq_offdiag", "median_sq_all", "median_distance")


def cka(
    X: Array,
    Y: Array,
    kernel: str = "linear",
    debiased: bool = True,
    bandwidth: str | float = "median_sq_offdiag",
) -> float | Tensor:
    """Return the centred kernel alignment of two descriptions of the same samples.

    `X` is `[..., N, D]`, `Y` `[..., N, D']`; columns are centred first. The biased form lies in 0
    ... 1 and is near 1 for independent noise where D is far above N; the debiased one (ratio of
    HSIC_1) is near 0 there, may be slightly negative and is not clamped. NaN where one side does
    not vary. The "rbf" kernel is exp(-|x - x'|^2 / (2 sigma^2)), with sigma^2 the median squared
    distance of distinct samples ("median_sq_offdiag"), the same with each sample to itself
    ("median_sq_all"), or the squared median distance ("median_distance"), each side having its own;
    a number is sigma itself, and a median of 0 gives NaN. Raises `LayerscopeError` for N < 4.

    Source: Kornblith et al. 2019 (biased; Tracing Representation Progression, equation 3); Nguyen
    et al. 2021, equation 3, for HSIC_1 of Song et al. 2012.

    >>> states = np.random.default_rng(0).normal(size=(50, 3))
    >>> round(cka(states, -2 * states), 3)  # rotations, reflections and scale do not count
    1.0
    """
    return as_result(of_pair(_measure(kernel, debiased, bandwidth), X, Y))


def cka_minibatch(X: Array, Y: Array, batch_size: int) -> float | Tensor:
    """Return the minibatch estimate of linear CKA: HSIC_1 summed over consecutive batches, then the ratio.

    `X` is `[..., N, D]`, `Y` `[..., N, D']`. It is another estimator than `cka` of all rows, and
    not the mean of the batches' CKA. Not clamped. Raises `LayerscopeError` for a batch, the last
    one included, of fewer than 4 rows.

    Source: Nguyen et al. 2021, Do wide and deep networks learn the same things?, equations 2 and 3.

    >>> states = np.random.default_rng(0).normal(size=(50, 3))
    >>> round(cka_minibatch(states, -2 * states, batch_size=10), 3)
    1.0
    """
    first, second = as_pair64(X, Y, ("X", "Y"))
    count = first.shape[-2]
    smallest = 0
    if batch_size > 0:
        smallest = min(count, batch_size, count % batch_size or batch_size)
    if smallest < 4:
        raise LayerscopeError(
            f"batch_size={batch_size} leaves a batch of {smallest} out of {count} rows: it takes 4"
        )
    hsic_xy = hsic_xx = hsic_yy = first.new_zeros(())
    for batch in slices(count, batch_size):
        x = centred(first[..., batch, :])
        y = centred(second[..., batch, :])
        hsic_xy = hsic_xy + _linear_hsic(x, y, debiased=True)
        hsic_xx = hsic_xx + _linear_hsic(x, x, debiased=True)
        hsic_yy = hsic_yy + _linear_hsic(y, y, debiased=True)
    return as_result(hsic_xy / (hsic_xx * hsic_yy).sqrt())


def _measure(kernel: str, debiased: bool, bandwidth: str | float) -> Measure:
    check_choice(kernel, "kernel", ("linear", "rbf"))
    if isinstance(bandwidth, str):
        check_choice(bandwidth, "bandwidth", BANDWIDTHS)
    elif not bandwidth > 0:
        raise LayerscopeError(
            f"bandwidth={bandwidth} is not above 0: give sigma, or one of {BANDWIDTHS}"
        )
    hsic_of = _linear_hsic if kernel == "linear" else _gram_hsic

    def prepare(rows: Tensor) -> Prepared:
        prepared = centred(rows)
        if kernel == "rbf":
            prepared = _rbf_gram(prepared, bandwidth)
        return prepared, hsic_of(prepared, prepared, debiased)

    def between(first: Prepared, second: Prepared) -> Tensor:
        k, hsic_k = first
        m, hsic_m = second
        return hsic_of(k, m, debiased) / (hsic_k * hsic_m).sqrt()

    return Measure("CKA", 4, prepare, between)


def _linear_hsic(x: Tensor, y: Tensor, debiased: bool) -> Tensor:
    """Return HSIC `[...]` of centred rows through the cheaper of the N x N Grams and the D x D' features.

    Biased, it is not divided by (N − 1)²: in a ratio that does not count.
    """
    count = x.shape[-2]
    if count * (x.shape[-1] + y.shape[-1]) < x.shape[-1] * y.shape[-1]:
        return _gram_hsic(x @ x.mT, y @ y.mT, debiased)
    inner = (x.mT @ y).square().sum((-2, -1))
    if not debiased:
        return inner
    diagonal_x = x.square().sum(-1)
    diagonal_y = y.square().sum(-1)
    return _unbiased(inner, diagonal_x, diagonal_y)


def _gram_hsic(k: Tensor, m: Tensor, debiased: bool) -> Tensor:
    """Return HSIC of Grams with row sums of zero."""
    inner: Tensor = torch.linalg.vecdot(k.flatten(-2), m.flatten(-2))
    if not debiased:
        return inner
    diagonal_k = torch.linalg.diagonal(k)
    diagonal_m = torch.linalg.diagonal(m)
    return _unbiased(inner, diagonal_k, diagonal_m)


def _unbiased(inner: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return HSIC_1 of two Grams with row sums of zero, by their inner product and their diagonals `[..., N]`."""
    diagonals = torch.linalg.vecdot(x, y)
    return hsic(inner, diagonals, x.sum(-1), y.sum(-1), x.shape[-1])


def _rbf_gram(rows: Tensor, bandwidth: str | float) -> Tensor:
    """Return the Grams of the Gaussian kernel, centred both ways."""
    norms = rows.square().sum(-1)
    sums = norms[..., :, None] + norms[..., None, :]
    squared = sums - 2 * rows @ rows.mT
    squared = squared.clamp(min=0.0)
    torch.linalg.diagonal(squared).zero_()
    if not isinstance(bandwidth, str):
        variance = squared.new_full(squared.shape[:-2], float(bandwidth) ** 2)
    elif bandwidth == "median_distance":
        variance = _median(above_diagonal(squared).sqrt()).square()
    elif bandwidth == "median_sq_all":
        variance = _median(squared.flatten(-2))
    else:
        variance = _median(above_diagonal(squared))
    gram = torch.exp(-squared / (2 * variance[..., None, None]))
    means = gram.mean(-1, keepdim=True)
    return gram - means - means.mT + means.mean(-2, keepdim=True)


def _median(values: Tensor) -> Tensor:
    """Return the median with the mean of the two middle values, where torch takes the lower one.

    >>> _median(torch.tensor([4.0, 1.0, 2.0, 3.0])).item()
    2.5
    """
    count = values.shape[-1]
    upper = values.kthvalue(count // 2 + 1).values
    if count % 2:
        return upper
    return (values.kthvalue(count // 2).values + upper) / 2


def _matrix(
    states: States,
    others: States | None,
    kernel: str = "linear",
    debiased: bool = True,
    bandwidth: str | float = "median_sq_offdiag",
) -> Tensor:
    measure = _measure(kernel, debiased, bandwidth)
    if kernel == "linear":
        return _linear_cka(states, others, debiased)
    return every_two(measure, states, others)


def _linear_cka(states: States, others: States | None, debiased: bool) -> Tensor:
    """Return linear `cka` of every two layers."""
    left, right = opened(states, others, center=True)
    check_count("CKA", left.count, 4)
    hsic_xy, hsic_xx, hsic_yy = inner_products(left, right)
    if debiased:
        # the diagonals of the Grams
        x = y = left.squared_norms()
        if right is not left:
            y = right.squared_norms().to(x.device)
        traces = x.sum(1)[:, None], y.sum(1)
        hsic_xy = hsic(hsic_xy, x @ y.mT, *traces, left.count)
        hsic_xx = _unbiased(hsic_xx, x, x)
        hsic_yy = _unbiased(hsic_yy, y, y)
    return hsic_xy / (hsic_xx[:, None] * hsic_yy).sqrt()


def hsic(
    inner: Tensor, diagonals: Tensor, trace_x: Tensor, trace_y: Tensor, count: int
) -> Tensor:
    """Return the unbiased HSIC_1 of two Grams with zero row sums, from sums that need no Gram in memory.

    `inner` is sum_ij K_ij L_ij, `diagonals` sum_i K_ii L_ii, `trace_x` and `trace_y` the traces,
    `count` N >= 4. With zero row sums, those without the diagonal are minus the diagonal.

    Source: Song et al. 2012, Feature selection via dependence maximization.
    """
    traces = trace_x * trace_y / ((count - 1) * (count - 2))
    corrected = inner - diagonals * (count / (count - 2)) + traces
    return corrected / (count * (count - 3))


CKA = Metric(
    cka,
    FromPairs(_matrix, "linear,{}", DEBIASING, least=4, all_samples=True),
    title="CKA",
    reading="1: two layers hold the same geometry",
    formula="debiased: HSIC₁(K, L) / √(HSIC₁(K, K) HSIC₁(L, L)), K = X Xᵀ, L = Y Yᵀ, HSIC₁ the unbiased estimator; "
    "biased: ‖Yᵀ X‖²_F / (‖Xᵀ X‖_F ‖Yᵀ Y‖_F), X and Y centred",
    meaning="Centred kernel alignment of two layers, linear kernel: how similarly the samples lie to each other, "
    "whatever the rotation and scale; at most 1. Debiased it is near 0 (or slightly below) for unrelated layers; "
    "biased it is near 1 even for noise where there are far fewer samples than features.",
    direction="1: the two layers hold the same geometry of samples.",
)
CKA_RBF = Metric(
    cka,
    FromPairs(
        partial(_matrix, kernel="rbf"), "rbf,{},median_sq_offdiag", DEBIASING, least=4
    ),
    name="cka_rbf",
    title="RBF CKA",
    reading="1: two layers hold the same neighbourhoods",
    formula="HSIC₁(K, L) / √(HSIC₁(K, K) HSIC₁(L, L)), Kᵢⱼ = exp(−‖xᵢ − xⱼ‖² / (2 σ²)), σ² the "
    "median of ‖xᵢ − xⱼ‖² over i < j, L the same of Y, HSIC₁ the unbiased estimator; biased: HSIC = tr(K H L "
    "H), H = I − 11ᵀ/N",
    meaning="Centred kernel alignment with a Gaussian kernel as wide as the median distance: how similarly near "
    "samples lie to each other; at most 1, and debiased near 0 (or slightly below) for unrelated layers.",
    direction="1: the two layers hold the same geometry of samples. Far samples count less than in linear CKA.",
)
