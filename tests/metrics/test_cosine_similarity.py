import numpy as np
import pytest
import references

from layerscope.errors import LayerscopeError
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


def test_a_zero_vector_has_cosine_zero(rng):
    X = rng.standard_normal((5, 3))
    X[2] = 0
    assert cosine_similarity(X, X, center=False)[2] == 0
    assert cosine_similarity(np.full((5, 3), 0.1), X).abs().max() == 0


def test_unequal_widths_are_both_named(rng):
    with pytest.raises(LayerscopeError, match="X has 3 features and Y has 4"):
        cosine_similarity(rng.standard_normal((5, 3)), rng.standard_normal((5, 4)))
