import math

import numpy as np
import pytest
import references
import torch

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import anisotropy, nesum


@pytest.mark.parametrize("shape", [(30, 8), (8, 30), (600, 5)])
def test_agrees_with_the_reference(rng, shape):
    Z = rng.standard_normal(shape) * rng.exponential(size=shape[1]) + 50
    values = references.covariance_eigenvalues(Z)
    assert nesum(Z) == pytest.approx(float(values.sum() / values[0]), rel=1e-9)
    assert nesum(Z) * anisotropy(Z) == pytest.approx(1, rel=1e-12)


def test_ends_of_the_scale(rng):
    assert nesum(np.outer(rng.standard_normal(9), rng.standard_normal(4)) + 3) == pytest.approx(1)
    assert nesum(np.vstack([np.eye(6), -np.eye(6)])) == pytest.approx(6)
    assert math.isnan(nesum(np.full((5, 3), 0.1)))


def test_leading_dimensions_and_errors(rng):
    Z = rng.standard_normal((2, 3, 9, 5))
    values = nesum(Z)
    assert values.shape == (2, 3) and values.dtype == torch.float64
    assert float(values[1, 0]) == pytest.approx(nesum(Z[1, 0]))
    Z[0, 1, 2, 3] = np.inf
    with pytest.raises(LayerscopeError, match="Z holds 1 NaN or infinite"):
        nesum(Z)
