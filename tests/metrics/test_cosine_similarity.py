import numpy as np
import pytest
import references

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import cosine_similarity


@pytest.mark.parametrize("center", [True, False])
def test_agrees_with_the_reference(rng, center):
    X, Y = rng.standard_normal((2, 3, 10, 5)) + 1
    values = cosine_similarity(X, Y, center)
    for i in range(3):
        np.testing.assert_allclose(values[i], references.cosines(X[i], Y[i], center), rtol=1e-9)


def test_each_side_is_centred_by_its_own_mean(rng):
    X = rng.standard_normal((40, 6))
    np.testing.assert_allclose(cosine_similarity(X + 100, X - 7), 1, rtol=1e-9)
    assert cosine_similarity(X + 100, X - 100, center=False).max() < 0


def test_a_zero_vector_has_no_cosine(rng):
    X = rng.standard_normal((5, 3))
    X[2] = 0
    assert cosine_similarity(X, X, center=False).isnan().tolist() == [
        False,
        False,
        True,
        False,
        False,
    ]
    assert cosine_similarity(np.full((5, 3), 0.1), X).isnan().all()
    assert cosine_similarity(np.zeros((5, 3)), X).isnan().all()


def test_a_centred_vector_is_zero_up_to_rounding(rng):
    X = rng.standard_normal((3, 6, 4))
    Y = X.copy()
    Y[1] = np.float32(0.1) * (1 + np.float32(1e-7) * rng.standard_normal((6, 4)))
    Y[2, 5] = Y[2, :5].mean(0) + 1e-9
    undefined = cosine_similarity(X, Y).isnan()
    assert undefined.sum(-1).tolist() == [0, 6, 1] and undefined[2, 5]
    for small in (1e-20, 1e20):  # nothing depends on the unit the states are in
        assert cosine_similarity(X * small, Y * small).isnan().equal(undefined)


def test_unequal_widths_are_both_named(rng):
    with pytest.raises(LayerscopeError, match="X has 3 features and Y has 4"):
        cosine_similarity(rng.standard_normal((5, 3)), rng.standard_normal((5, 4)))
