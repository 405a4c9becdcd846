import math

import numpy as np
import pytest
import references
import torch

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import canonical_correlations, cca, kept_dimensions, pwcca, svcca


@pytest.fixture
def pair(rng):
    X = rng.standard_normal((60, 6)) * [5, 3, 2, 1, 0.3, 0.1] + 4
    return X, np.tanh(X[:, :4] @ rng.standard_normal((4, 9))) + 0.3 * rng.standard_normal((60, 9))


def test_agree_with_the_references(pair):
    for X, Y in (pair, pair[::-1]):
        correlations, _ = references.canonical(X, Y)
        np.testing.assert_allclose(canonical_correlations(X, Y), correlations, rtol=1e-9)
        assert cca(X, Y) == pytest.approx(correlations.mean(), rel=1e-9)
        assert pwcca(X, Y) == pytest.approx(references.pwcca(X, Y), rel=1e-8)
        assert pwcca(X, Y, "second") == pytest.approx(references.pwcca(Y, X), rel=1e-8)
        for variance in (0.5, 0.9, 0.99, 1.0):
            kept = [references.leading(side, variance) for side in (X, Y)]
            assert [kept_dimensions(side, variance) for side in (X, Y)] == [
                side.shape[1] for side in kept
            ]
            assert svcca(X, Y, variance) == pytest.approx(
                references.canonical(*kept)[0].mean(), rel=1e-8
            )


def test_do_not_see_a_linear_map_and_svcca_no_rotation(pair, rng):
    X, Y = pair
    mapped, turn = X @ rng.standard_normal((6, 6)) - 3, np.linalg.qr(rng.standard_normal((6, 6)))[0]
    assert cca(mapped, Y) == pytest.approx(cca(X, Y), rel=1e-9)
    assert svcca(7 * X @ turn + 2, Y) == pytest.approx(svcca(X, Y), rel=1e-9)
    assert cca(X, mapped) == pytest.approx(1) and svcca(X, X @ turn) == pytest.approx(1)
    assert pwcca(X, Y) != pytest.approx(pwcca(X, Y, "second"), rel=1e-3)


def test_leading_dimensions_with_unequal_ranks(rng):
    X, Y = rng.standard_normal((2, 3, 30, 4)), rng.standard_normal((2, 3, 30, 5))
    X[0, 1, :, 3] = X[0, 1, :, 0] + 1  # rank 3
    X[1, 1, :, 1] *= 20
    for function in (
        cca,
        svcca,
        pwcca,
        lambda a, b: svcca(a, b, 0.6),
        lambda a, b: pwcca(a, b, "second"),
    ):
        values = function(X, Y)
        assert values.shape == (2, 3) and values.dtype == torch.float64
        for i in np.ndindex(2, 3):
            assert float(values[i]) == pytest.approx(
                function(torch.from_numpy(X[i]), Y[i]), rel=1e-10
            )
    assert canonical_correlations(X, Y).isnan().sum(-1).tolist() == [[0, 1, 0], [0, 0, 0]]
    assert kept_dimensions(X, 1.0).tolist() == [[4, 3, 4], [4, 4, 4]]


def test_a_direction_within_the_rounding_of_float32_is_none(rng):
    X, Y = rng.standard_normal((50, 5)), rng.standard_normal((50, 5))
    held = X - X.mean(1, keepdims=True)  # as after a norm: a plane
    assert cca(held.astype(np.float32), Y) == pytest.approx(
        cca(X[:, :4] - X.mean(1, keepdims=True), Y), rel=1e-6
    )


def test_few_samples_are_one_by_construction(rng):
    X, Y = rng.standard_normal((2, 10, 12))
    assert cca(X, Y) == pytest.approx(1) and pwcca(X, Y) == pytest.approx(1)


def test_a_side_that_does_not_vary_is_nan(rng):
    constant, Y = np.full((9, 3), 0.1, dtype=np.float32), rng.standard_normal((9, 4))
    for function in (cca, svcca, pwcca):
        assert math.isnan(function(constant, Y)) and math.isnan(function(Y, constant))
    assert kept_dimensions(constant) == 0


def test_errors(rng):
    X = rng.standard_normal((6, 3))
    for function, name in ((cca, "CCA"), (svcca, "SVCCA"), (pwcca, "PWCCA")):
        with pytest.raises(
            LayerscopeError, match=f"^{name} over 2 rows is not defined: give at least 3 samples"
        ):
            function(X[:2], X[:2])
        with pytest.raises(LayerscopeError, match="X has 6 rows and Y has 5"):
            function(X, X[:5])
    with pytest.raises(LayerscopeError, match=r"variance=99 is not a share"):
        svcca(X, X, 99)
    with pytest.raises(LayerscopeError, match="weights_from='frist'.*did you mean first"):
        pwcca(X, X, "frist")
