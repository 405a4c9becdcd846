"""What is special of the other metrics of one layer: known values, and where there is none."""

import math
import sys

import numpy as np
import pytest
import references
import torch

from layerscope.metrics import (
    alpha_req,
    anisotropy,
    curvature,
    dime,
    intrinsic_dimension,
    isotropy,
    nesum,
    norms,
    zero_differences,
)

# the function hides its module
MODULE = sys.modules["layerscope.metrics.intrinsic_dimension"]


def with_spectrum(rng, count, eigenvalues):
    """Centred rows whose covariance has these eigenvalues."""
    rows = rng.standard_normal((count, len(eigenvalues)))
    u, _, v = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    return u * np.sqrt((count - 1) * np.asarray(eigenvalues)) @ v


def test_alpha_req_leaves_out_directions_without_variance(rng):
    thin = with_spectrum(rng, 90, np.arange(1, 31.0) ** -1.0) @ rng.standard_normal(
        (30, 60)
    )
    assert alpha_req(thin, (1, 60)) == pytest.approx(
        references.alpha_req(thin, (1, 30)), rel=1e-6
    )
    assert math.isnan(alpha_req(thin[:, :1] * np.ones(30), (10, 20)))


def test_the_ends_of_the_scale_of_anisotropy_and_nesum(rng):
    line = np.outer(rng.standard_normal(9), rng.standard_normal(4)) + 3
    corners = 1e200 * np.vstack([np.eye(6), -np.eye(6)])
    for Z, dimensions in ((line, 1), (corners, 6)):
        assert nesum(Z) == pytest.approx(dimensions)
        assert anisotropy(Z) == pytest.approx(1 / dimensions)
    assert isotropy(line) == pytest.approx(3**-0.5)
    assert isotropy(corners) > 1e6
    assert math.isnan(anisotropy(rng.standard_normal((1, 3))))


def test_intrinsic_dimension_is_that_of_tiles_of_any_size_with_equal_rows_once(
    rng, monkeypatch
):
    Z = rng.standard_normal((53, 6))
    Z[0, 0] = 0.0
    again = np.vstack([Z, Z[:20], Z[3:8]])
    again[53, 0] = -0.0
    whole = references.intrinsic_dimension(Z)
    for tile in (1, 2, 7, 50):
        monkeypatch.setattr(MODULE, "TILE", tile)
        assert intrinsic_dimension(again) == pytest.approx(whole, rel=1e-9)


def test_far_from_zero_neighbours_keep_their_distances(rng):
    Z = rng.standard_normal((80, 4))
    far = intrinsic_dimension(Z + 1e8)
    assert far == pytest.approx(references.intrinsic_dimension(Z), rel=1e-5)


def test_what_has_no_dimension_is_nan(rng):
    two = rng.standard_normal((2, 4))
    grid = np.stack(np.meshgrid(np.arange(6.0), np.arange(6.0)), -1).reshape(-1, 2)
    for Z in (two[:1], two, np.vstack([two, two]), grid):
        assert math.isnan(intrinsic_dimension(Z))


def test_trap_11_fewer_than_three_tokens_have_no_curvature(rng):
    tokens = rng.standard_normal((4, 4, 3))
    mask = np.arange(4) < np.array([0, 1, 2, 3])[:, None]
    assert curvature(tokens, mask).isnan().tolist() == [True, True, True, False]
    assert math.isnan(curvature(tokens[0, :1])) and math.isnan(curvature(tokens[0, :2]))


def test_trap_14_repeated_tokens_are_left_out_and_counted(rng):
    walk = rng.standard_normal((6, 4))
    repeated = np.vstack([walk[:3], walk[2:]])
    assert curvature(repeated) == pytest.approx(references.curvature(repeated))
    assert curvature(repeated) != pytest.approx(curvature(walk))
    assert str(zero_differences(repeated)) == "1"  # a count is a whole number
    assert zero_differences(walk) == 0 and zero_differences(np.ones((5, 3))) == 4
    padded = np.vstack([walk, np.zeros((4, 4))])
    assert zero_differences(padded, np.arange(10) < 6) == 0


def test_trap_14_the_cosine_of_a_straight_line_is_clipped():
    for seed in range(40):
        line = np.random.default_rng(seed).standard_normal(64).astype(np.float32)
        tokens = np.arange(20, dtype=np.float32)[:, None] * line
        assert 0 <= curvature(tokens) < 0.01


def test_trap_11_norms_of_no_token_and_of_one(rng):
    tokens = rng.standard_normal((2, 4, 3))
    result = norms(tokens, np.arange(4) < np.array([[0], [1]]))
    parts = torch.stack([result.mean, result.median, result.maximum, result.sink_share])
    size = np.linalg.norm(tokens[1, 0])
    assert parts[:, 0].isnan().all()
    np.testing.assert_allclose(parts[:, 1], [size, size, size, 0])


def test_dime_draws_its_permutations_from_the_seed(rng):
    a, b = rng.standard_normal((2, 30, 4))
    generator = np.random.default_rng(3)
    orders = np.stack([generator.permutation(30) for _ in range(4)])
    value = dime(a, b, permutations=4, seed=3)
    assert value == dime(a, b, permutations=torch.from_numpy(orders))
    assert value == dime(a, b, permutations=np.int64(4), seed=3)
    assert value != dime(a, b, permutations=4, seed=4)
