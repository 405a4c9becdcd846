import math

import numpy as np
import pytest
import references
import torch

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import cka, cka_minibatch


@pytest.mark.parametrize("widths", [(5, 7), (80, 90), (5, 90)])
@pytest.mark.parametrize("debiased", [True, False])
def test_linear_agrees_with_the_reference(rng, widths, debiased):
    """Narrow pairs go through features, wide ones through Grams; the definition is one."""
    X = rng.standard_normal((20, widths[0])) + 3
    Y = X[:, :5] @ rng.standard_normal((5, widths[1])) + rng.standard_normal((20, widths[1]))
    want = references.cka(references.linear_gram(X), references.linear_gram(Y), debiased)
    assert cka(X, Y, debiased=debiased) == pytest.approx(want, rel=1e-9)
    assert cka(Y, X, debiased=debiased) == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("debiased", [True, False])
def test_rbf_agrees_with_the_reference(rng, debiased):
    X, Y = rng.standard_normal((15, 4)), rng.standard_normal((15, 6))
    want = references.cka(references.rbf_gram(X, 2.0), references.rbf_gram(Y, 2.0), debiased)
    assert cka(X, Y, "rbf", debiased, bandwidth=2.0) == pytest.approx(want, rel=1e-8)


def test_does_not_see_rotation_shift_scale_or_order(rng):
    X, Y = rng.standard_normal((25, 6)), rng.standard_normal((25, 9))
    rotation, order = np.linalg.qr(rng.standard_normal((6, 6)))[0], rng.permutation(25)
    for kernel in ("linear", "rbf"):
        moved = cka(4 * X[order] @ rotation + 9, Y[order], kernel)
        assert moved == pytest.approx(cka(X, Y, kernel), rel=1e-9)
        assert cka(X, X, kernel) == pytest.approx(1)


def test_leading_dimensions(rng):
    X, Y = rng.standard_normal((2, 3, 10, 4)), rng.standard_normal((2, 3, 10, 5))
    for kernel in ("linear", "rbf"):
        values = cka(X, Y, kernel)
        assert values.shape == (2, 3) and values.dtype == torch.float64
        assert float(values[1, 2]) == pytest.approx(cka(X[1, 2], Y[1, 2], kernel), rel=1e-10)


def test_trap_01_biased_cka_on_noise(rng):
    X, Y = rng.standard_normal((2, 32, 4096))
    assert cka(X, Y, debiased=False) > 0.98
    assert abs(cka(X, Y)) < 0.05
    signs = [cka(*rng.standard_normal((2, 12, 50))) for _ in range(20)]
    assert min(signs) < 0, "a debiased value is not clamped"


def test_trap_02_columns_are_centred_before_the_gram(rng):
    X = rng.standard_normal((60, 24)).astype(np.float32)
    Y = (X + rng.standard_normal((60, 24))).astype(np.float32)
    X[:, 7] += 3000
    want = references.cka(references.linear_gram(X), references.linear_gram(Y))
    with np.errstate(invalid="ignore"):
        trapped = references.cka(X @ X.T, Y @ Y.T)
    assert not abs(trapped - want) < 0.01
    assert cka(X, Y) == pytest.approx(want, rel=1e-8)
    assert cka(X.astype(np.float64) + 1e6, Y) == pytest.approx(want, rel=1e-6)


def test_trap_03_minibatch_sums_before_the_ratio(rng):
    X = rng.standard_normal((30, 5))
    Y = X + rng.standard_normal((30, 5))
    sums = np.zeros(3)
    single = []
    for low in range(0, 30, 10):
        K, L = references.linear_gram(X[low : low + 10]), references.linear_gram(Y[low : low + 10])
        sums += [references.hsic_1(K, L), references.hsic_1(K, K), references.hsic_1(L, L)]
        single.append(references.cka(K, L))
    want = sums[0] / math.sqrt(sums[1] * sums[2])
    assert cka_minibatch(X, Y, 10) == pytest.approx(want, rel=1e-9)
    assert abs(np.mean(single) - want) > 1e-4
    assert cka_minibatch(X, Y, 50) == pytest.approx(cka(X, Y), rel=1e-12)


def test_trap_03_fewer_than_four_rows_are_an_error(rng):
    X = rng.standard_normal((11, 3))
    with pytest.raises(LayerscopeError, match="CKA over 3 rows"):
        cka(X[:3], X[:3])
    with pytest.raises(LayerscopeError, match="batch of 3 out of 11"):
        cka_minibatch(X, X, 4)
    with pytest.raises(LayerscopeError, match="batch_size=0"):
        cka_minibatch(X, X, 0)


def test_trap_12_half_precision_does_not_overflow(rng):
    X = (15_000 * np.sign(rng.standard_normal((12, 6)))).astype(np.float16)
    assert cka(X, X) == pytest.approx(1)


def test_a_side_that_does_not_vary_is_nan(rng):
    constant = np.full((9, 3), 0.1)
    for kernel in ("linear", "rbf"):
        assert math.isnan(cka(constant, rng.standard_normal((9, 4)), kernel))


def test_errors(rng):
    X = rng.standard_normal((6, 3))
    with pytest.raises(LayerscopeError, match="kernel='linaer'.*did you mean linear"):
        cka(X, X, "linaer")
    with pytest.raises(LayerscopeError, match="bandwidth=0"):
        cka(X, X, "rbf", bandwidth=0)
    with pytest.raises(LayerscopeError, match="X has 6 rows and Y has 5"):
        cka(X, X[:5])
