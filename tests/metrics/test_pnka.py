import numpy as np
import pytest
import references

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import pnka


@pytest.mark.parametrize("widths", [(4, 7), (30, 40), (5, 30)])
def test_is_the_cosine_of_the_rows_of_the_grams(rng, widths):
    X = rng.standard_normal((20, widths[0])) + 3000
    Y = X[:, :4] @ rng.standard_normal((4, widths[1])) + rng.standard_normal((20, widths[1]))
    K, L = references.linear_gram(X), references.linear_gram(Y)
    want = [k @ m / np.sqrt((k @ k) * (m @ m)) for k, m in zip(K, L, strict=True)]
    np.testing.assert_allclose(pnka(X, Y), want, rtol=1e-8)


def test_tells_which_sample_moved(rng):
    X = rng.standard_normal((40, 8))
    Y = X.copy()
    Y[5] = -Y[5]
    assert int(pnka(X, Y).argmin()) == 5
    turn = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    np.testing.assert_allclose(pnka(X, 3 * X @ turn + 1), 1, rtol=1e-12)


def test_leading_dimensions_and_samples_at_the_mean(rng):
    X, Y = rng.standard_normal((2, 9, 4)), rng.standard_normal((2, 9, 12)).astype(np.float32)
    X[0, 3] += X[0].sum(0) / 8 - X[0, 3] * 9 / 8  # now at the mean of all
    X[1] = 0.1
    values = pnka(X, Y)
    assert values.isnan().sum(-1).tolist() == [1, 9] and bool(values[0, 3].isnan())
    np.testing.assert_allclose(values[0], pnka(X[0], Y[0]), rtol=1e-12)


def test_errors(rng):
    X = rng.standard_normal((6, 3))
    with pytest.raises(LayerscopeError, match="PNKA over 1 rows"):
        pnka(X[:1], X[:1])
    with pytest.raises(LayerscopeError, match="X holds 1 NaN"):
        pnka(np.where(np.arange(18).reshape(6, 3) == 4, np.nan, X), X)
