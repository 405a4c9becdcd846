import math

import numpy as np
import pytest
import references
import torch

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import anisotropy


@pytest.mark.parametrize("shape", [(30, 8), (8, 30), (600, 5)])
def test_agrees_with_the_reference(rng, shape):
    Z = rng.standard_normal(shape) * rng.exponential(size=shape[1]) + 50
    assert anisotropy(Z) == pytest.approx(references.anisotropy(Z), rel=1e-9)


def test_rows_are_centred_first(rng):
    """A mean far from zero is no direction of variance: uncentred, one direction would hold all."""
    Z = rng.standard_normal((400, 10))
    assert anisotropy(Z + 1000) == pytest.approx(anisotropy(Z), rel=1e-9)
    assert anisotropy(Z) < 0.2


def test_ends_of_the_scale(rng):
    assert anisotropy(
        np.outer(rng.standard_normal(9), rng.standard_normal(4)) + 3
    ) == pytest.approx(1)
    corners = np.vstack([np.eye(6), -np.eye(6)])
    assert anisotropy(corners) == pytest.approx(1 / 6)
    assert math.isnan(anisotropy(np.full((5, 3), 0.1))) and math.isnan(
        anisotropy(rng.standard_normal((1, 3)))
    )
    assert anisotropy(1e200 * corners) == pytest.approx(1 / 6)


def test_leading_dimensions_types_and_errors(rng):
    Z = rng.standard_normal((2, 3, 9, 5))
    Z[1, 2] = 1
    values = anisotropy(torch.from_numpy(Z))
    assert values.shape == (2, 3) and values.dtype == torch.float64
    np.testing.assert_array_equal(values.isnan().flatten(), [False] * 5 + [True])
    with pytest.raises(LayerscopeError, match=r"Z has shape \(5,\)"):
        anisotropy(Z[0, 0, 0])
    Z[0, 1, 2, 3] = np.nan
    with pytest.raises(LayerscopeError, match="Z holds 1 NaN"):
        anisotropy(Z)
