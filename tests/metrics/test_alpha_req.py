import math

import numpy as np
import pytest
import references
import torch

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import alpha_req


def with_spectrum(rng, count, eigenvalues):
    """Centred rows whose covariance has these eigenvalues."""
    rows = rng.standard_normal((count, len(eigenvalues)))
    u, _, v = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    return u * np.sqrt((count - 1) * np.asarray(eigenvalues)) @ v


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.5])
def test_a_power_law_gives_its_exponent(rng, alpha):
    Z = with_spectrum(rng, 200, np.arange(1, 121.0) ** -alpha) + 5
    for fit in ((10, 100), (1, 120), (40, 60)):
        assert alpha_req(Z, fit) == pytest.approx(alpha, rel=1e-9)


@pytest.mark.parametrize(
    ("shape", "fit"), [((300, 120), (10, 100)), ((60, 90), (10, 100)), ((400, 30), (5, 20))]
)
def test_agrees_with_the_reference(rng, shape, fit):
    Z = rng.standard_normal(shape) * rng.exponential(size=shape[1]) + 1
    assert alpha_req(Z, fit) == pytest.approx(references.alpha_req(Z, fit), rel=1e-8)


def test_only_ranks_within_the_range_count(rng):
    eigenvalues = np.arange(1, 41.0) ** -1.5
    bent = eigenvalues.copy()
    bent[:9], bent[20:] = 10 * bent[:9], bent[20:] / 100
    assert alpha_req(with_spectrum(rng, 80, bent), (10, 20)) == pytest.approx(1.5, rel=1e-9)


def test_directions_without_variance_are_left_out(rng):
    thin = with_spectrum(rng, 90, np.arange(1, 31.0) ** -1.0) @ rng.standard_normal((30, 60))
    assert alpha_req(thin, (1, 60)) == pytest.approx(references.alpha_req(thin, (1, 30)), rel=1e-6)
    assert math.isnan(alpha_req(np.ones((40, 30)), (1, 20)))
    assert math.isnan(alpha_req(thin[:, :1] * np.ones(30), (10, 20)))


def test_leading_dimensions_and_errors(rng):
    Z = rng.standard_normal((2, 3, 40, 20))
    values = alpha_req(Z, (2, 15))
    assert values.shape == (2, 3) and values.dtype == torch.float64
    assert float(values[1, 0]) == pytest.approx(alpha_req(torch.from_numpy(Z[1, 0]), (2, 15)))
    with pytest.raises(
        LayerscopeError, match=r"fit=\(10, 100\) holds fewer than two of the ranks 1 ... 8"
    ):
        alpha_req(Z[..., :8])
    with pytest.raises(LayerscopeError, match=r"fit=\(0, 9\)"):
        alpha_req(Z, (0, 9))
    Z[0, 1, 2, 3] = np.nan
    with pytest.raises(LayerscopeError, match="Z holds 1 NaN"):
        alpha_req(Z)
