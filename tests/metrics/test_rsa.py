import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist
from scipy.stats import pearsonr, spearmanr

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import rsa


@pytest.mark.parametrize("rdm", ["correlation", "cosine"])
@pytest.mark.parametrize("compare", ["spearman", "pearson"])
def test_agrees_with_scipy(rng, rdm, compare):
    X = rng.standard_normal((30, 5)) + 1
    Y = X @ rng.standard_normal((5, 40)) + rng.standard_normal((30, 40))
    statistic = spearmanr if compare == "spearman" else pearsonr
    want = statistic(pdist(X, rdm), pdist(Y, rdm)).statistic
    assert rsa(X, Y, rdm, compare) == pytest.approx(want, rel=1e-9)
    assert rsa(Y.astype(np.float32), X.astype(np.float32), rdm, compare) == pytest.approx(
        want, rel=1e-5
    )


def test_equal_samples_tie_at_their_mean_rank(rng):
    X, Y = rng.integers(0, 2, (24, 4)), rng.standard_normal((24, 3))
    X[:, 0] = 1 - X[:, 1]
    X, Y = np.repeat(X, 3, 0), np.repeat(Y, 3, 0)
    known = np.round(pdist(X, "correlation"), 12), np.round(pdist(Y, "correlation"), 12)
    assert len(np.unique(known[0])) < 10
    assert rsa(X, Y) == pytest.approx(spearmanr(*known).statistic, rel=1e-9)
    order = rng.permutation(72)
    assert rsa(X[order], Y[order]) == pytest.approx(rsa(X, Y), rel=1e-12)


def test_leading_dimensions_and_a_side_that_does_not_vary(rng):
    X, Y = rng.standard_normal((2, 3, 9, 4)), torch.from_numpy(rng.standard_normal((2, 3, 9, 6)))
    X[1, 2] = [0.1, 0.2, 0.3, 0.7]
    values = rsa(X, Y)
    assert float(values[0, 1]) == pytest.approx(rsa(X[0, 1], Y[0, 1]), rel=1e-12)
    assert values.isnan().tolist() == [[False] * 3, [False, False, True]]
    assert math.isnan(rsa(X[..., :1], Y)[0, 0]), "one feature has no correlation"
    assert math.isnan(rsa(np.repeat(0.1 * np.arange(1, 10)[:, None], 7, 1), Y[0, 0])), (
        "rows of one constant have none"
    )


def test_errors(rng):
    X = rng.standard_normal((6, 3))
    with pytest.raises(LayerscopeError, match="RSA over 2 rows"):
        rsa(X[:2], X[:2])
    with pytest.raises(LayerscopeError, match="rdm='euclid'"):
        rsa(X, X, "euclid")
    with pytest.raises(LayerscopeError, match="compare='spearmann'.*did you mean spearman"):
        rsa(X, X, compare="spearmann")
