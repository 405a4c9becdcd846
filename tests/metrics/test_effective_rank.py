import numpy as np
import pytest
import references

from layerscope.metrics import effective_rank


@pytest.mark.parametrize("shape", [(30, 8), (8, 30), (600, 5)])
@pytest.mark.parametrize("center", [True, False])
def test_agrees_with_the_reference(rng, shape, center):
    Z = rng.standard_normal(shape) * rng.exponential(size=shape[1]) + 1
    assert effective_rank(Z, center) == pytest.approx(
        references.effective_rank(Z, center), rel=1e-9
    )


def test_known_ranks(rng):
    assert effective_rank(np.eye(7)) == pytest.approx(7)
    assert effective_rank(
        np.outer(rng.standard_normal(9), rng.standard_normal(4))
    ) == pytest.approx(1)
    assert effective_rank(np.ones((5, 3)), center=True) == 1
