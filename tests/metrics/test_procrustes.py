import math

import numpy as np
import pytest
import references
from scipy.linalg import orthogonal_procrustes

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import procrustes


@pytest.mark.parametrize("widths", [(4, 7), (30, 40), (5, 30)])
def test_is_the_distance_left_by_the_best_rotation(rng, widths):
    X = rng.standard_normal((20, widths[0])) + 3
    Y = X[:, :4] @ rng.standard_normal((4, widths[1])) + rng.standard_normal((20, widths[1]))
    a, b = (references.centred(side) for side in (X, Y))
    a = np.pad(a, ((0, 0), (0, widths[1] - widths[0])))
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    left = np.linalg.norm(a @ orthogonal_procrustes(a, b)[0] - b)
    assert procrustes(X, Y, "distance") == pytest.approx(left, rel=1e-9)
    assert procrustes(Y, X, "squared_distance") == pytest.approx(left**2, rel=1e-9)
    assert procrustes(X, Y) == pytest.approx(1 - left**2 / 2, rel=1e-9)
    assert math.cos(procrustes(X, Y, "angular")) == pytest.approx(1 - left**2 / 2, rel=1e-9)


def test_does_not_see_rotation_shift_and_scale(rng):
    X, turn = rng.standard_normal((25, 6)), np.linalg.qr(rng.standard_normal((6, 6)))[0]
    assert procrustes(X, 5 * X @ turn - 2) == pytest.approx(1)
    assert procrustes(X, X @ np.diag([9, 1, 1, 1, 1, 1])) < 0.9


def test_leading_dimensions_and_a_side_that_does_not_vary(rng):
    X, Y = rng.standard_normal((2, 9, 4)), rng.standard_normal((2, 9, 12)).astype(np.float32)
    X[1] = 0.1
    values = procrustes(X, Y)
    assert float(values[0]) == pytest.approx(procrustes(X[0], Y[0]), rel=1e-12)
    assert values.isnan().tolist() == [False, True]


def test_errors(rng):
    X = rng.standard_normal((6, 3))
    with pytest.raises(LayerscopeError, match="Procrustes over 1 rows"):
        procrustes(X[:1], X[:1])
    with pytest.raises(LayerscopeError, match="kind='distanc'.*did you mean distance"):
        procrustes(X, X, "distanc")
