import numpy as np
import pytest
import references
import torch

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import lidar


@pytest.mark.parametrize("shape", [(30, 3, 8), (5, 4, 12), (12, 2, 12), (2, 2, 3)])
@pytest.mark.parametrize("eps", [0.0, 1e-3])
def test_agrees_with_the_reference(rng, shape, eps):
    views = rng.standard_normal((shape[0], 1, shape[2])) + 0.5 * rng.standard_normal(shape)
    assert lidar(views, 1e-2, eps) == pytest.approx(references.lidar(views, 1e-2, eps), rel=1e-8)


def test_range_order_and_leading_dimensions(rng):
    views = rng.standard_normal((2, 20, 3, 6)) + 2 * rng.standard_normal((2, 20, 1, 6))
    values = lidar(views)
    assert values.dtype == torch.float64 and bool(((values >= 1) & (values <= 6)).all())
    assert lidar(rng.permutation(views[1])) == pytest.approx(float(values[1]), rel=1e-10)
    assert lidar(views[:, :4])[0] <= 3


def test_wide_views_use_the_small_side(rng):
    views = rng.standard_normal((6, 3, 600))
    assert lidar(views, 0.1) == pytest.approx(references.lidar(views, 0.1), rel=1e-8)


def test_errors(rng):
    with pytest.raises(LayerscopeError, match="5 samples of 1 views"):
        lidar(rng.standard_normal((5, 1, 3)))
    with pytest.raises(LayerscopeError, match="delta=0"):
        lidar(rng.standard_normal((5, 2, 3)), delta=0)
    with pytest.raises(LayerscopeError, match="views holds"):
        lidar(np.full((3, 2, 2), np.nan))
