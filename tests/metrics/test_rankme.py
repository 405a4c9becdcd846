import numpy as np
import pytest
import references
import torch

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import effective_rank, rankme


@pytest.mark.parametrize("shape", [(30, 8), (8, 30), (600, 5)])
@pytest.mark.parametrize("eps", [0.0, 1e-7, 1e-3])
def test_agrees_with_the_reference(rng, shape, eps):
    Z = rng.standard_normal(shape) * rng.exponential(size=shape[1]) + 1
    assert rankme(Z, eps) == pytest.approx(references.rankme(Z, eps), rel=1e-10)


def test_without_epsilon_it_is_the_effective_rank(rng):
    layers = rng.standard_normal((3, 20, 7))
    np.testing.assert_allclose(rankme(layers, eps=0.0), effective_rank(layers), rtol=1e-12)
    assert rankme(
        np.outer(rng.standard_normal(9), rng.standard_normal(4)), eps=0.0
    ) == pytest.approx(1)
    assert rankme(np.zeros((5, 3))) == pytest.approx(1, abs=1e-4)


def test_leading_dimensions_types_and_errors(rng):
    Z = rng.standard_normal((2, 3, 9, 5))
    values = rankme(torch.from_numpy(Z).float())
    assert values.shape == (2, 3) and values.dtype == torch.float64
    assert isinstance(rankme(Z[0, 0]), float)
    with pytest.raises(LayerscopeError, match="eps=-1 is below 0"):
        rankme(Z, eps=-1)
    Z[0, 1, 2, 3] = np.nan
    with pytest.raises(LayerscopeError, match="Z holds 1 NaN"):
        rankme(Z)
