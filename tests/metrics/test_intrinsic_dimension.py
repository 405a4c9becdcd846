import math
import sys

import numpy as np
import pytest
import references
import torch

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import intrinsic_dimension

MODULE = sys.modules["layerscope.metrics.intrinsic_dimension"]  # the function hides its module


@pytest.mark.parametrize("shape", [(30, 8), (8, 30), (150, 3), (3, 4)])
@pytest.mark.parametrize("discard", [0.0, 0.1, 0.5])
def test_agrees_with_the_reference(rng, shape, discard):
    Z = rng.standard_normal(shape) * rng.exponential(size=shape[1]) + 1
    assert intrinsic_dimension(Z, discard) == pytest.approx(references.two_nn(Z, discard), rel=1e-9)


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_a_flat_sheet_in_a_wide_space_has_its_own_dimension(rng, dimension):
    sheet = rng.random((3000, dimension)) @ np.linalg.qr(rng.standard_normal((20, dimension)))[0].T
    assert intrinsic_dimension(sheet) == pytest.approx(dimension, rel=0.1)


def test_tiles_change_nothing(rng, monkeypatch):
    Z = rng.standard_normal((53, 6))
    Z[40:45] = Z[3:8]
    whole = intrinsic_dimension(Z)
    for tile in (1, 2, 7, 50):
        monkeypatch.setattr(MODULE, "TILE", tile)
        assert intrinsic_dimension(Z) == pytest.approx(whole, rel=1e-12)


def test_distances_in_memory_are_bounded(rng, monkeypatch):
    sizes, product = [], MODULE._two_nearest

    def seen(rows, columns, same):
        sizes.append((len(rows), len(columns)))
        return product(rows, columns, same)

    monkeypatch.setattr(MODULE, "TILE", 64)
    monkeypatch.setattr(MODULE, "_two_nearest", seen)
    intrinsic_dimension(rng.standard_normal((300, 4)))
    assert len(sizes) == 25 and max(max(pair) for pair in sizes) == 64


def test_equal_rows_count_once(rng):
    Z = rng.standard_normal((60, 5))
    Z[0, 0] = 0.0
    again = np.vstack([Z, Z[:20], Z[:20]])
    again[60, 0] = -0.0
    assert intrinsic_dimension(again) == pytest.approx(intrinsic_dimension(Z), rel=1e-12)


def test_far_from_zero_neighbours_keep_their_distances(rng):
    Z = rng.standard_normal((80, 4))
    assert intrinsic_dimension(Z + 1e6) == pytest.approx(references.two_nn(Z), rel=1e-6)


def test_what_has_no_dimension_is_nan(rng):
    two = rng.standard_normal((2, 4))
    for Z in (two[:1], two, np.vstack([two, two]), np.ones((9, 3))):
        assert math.isnan(intrinsic_dimension(Z))
    grid = np.stack(np.meshgrid(np.arange(6.0), np.arange(6.0)), -1).reshape(-1, 2)
    assert math.isnan(intrinsic_dimension(grid))


def test_leading_dimensions_and_errors(rng):
    Z = rng.standard_normal((2, 3, 40, 5))
    values = intrinsic_dimension(torch.from_numpy(Z))
    assert values.shape == (2, 3) and values.dtype == torch.float64
    assert float(values[1, 0]) == pytest.approx(intrinsic_dimension(Z[1, 0]))
    for discard in (-0.1, 1.0, math.nan):
        with pytest.raises(LayerscopeError, match=f"discard={discard} is not a share"):
            intrinsic_dimension(Z, discard)
    Z[0, 1, 2, 3] = np.nan
    with pytest.raises(LayerscopeError, match="Z holds 1 NaN"):
        intrinsic_dimension(Z)
