import numpy as np
import pytest
import references

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import angular_distance


@pytest.mark.parametrize("center", [True, False])
def test_is_the_angle_of_each_sample(rng, center):
    X, Y = rng.standard_normal((2, 20, 6)) + 1
    want = np.arccos(references.cosines(X, Y, center)) / np.pi
    np.testing.assert_allclose(angular_distance(X, Y, center), want, rtol=1e-10)


def test_ends_of_the_scale(rng):
    X = rng.standard_normal((50, 300))
    X -= X.mean(0)
    np.testing.assert_array_equal(angular_distance(X, 3 * X), 0)
    np.testing.assert_allclose(angular_distance(X, -X), 1, atol=1e-7)
    assert angular_distance([[1.0, 0.0]], [[0.0, 2.0]], center=False).tolist() == [0.5]


def test_no_direction_is_nan_and_widths_must_agree(rng):
    X = rng.standard_normal((2, 5, 3))
    X[1] = 0.1
    values = angular_distance(X, X[0])
    assert values.isnan().sum(-1).tolist() == [0, 5]
    with pytest.raises(LayerscopeError, match="cosine needs equal widths"):
        angular_distance(X, X[..., :2])
