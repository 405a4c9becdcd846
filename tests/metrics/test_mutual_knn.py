from importlib import import_module

import numpy as np
import pytest
import references
import torch

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import mutual_knn


def want(X, Y, k, distance):
    pairs = zip(
        references.neighbours(X, k, distance), references.neighbours(Y, k, distance), strict=True
    )
    return np.mean([len(a & b) / k for a, b in pairs])


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("k", [1, 4, 29])
def test_agrees_with_the_reference(rng, distance, k, monkeypatch):
    monkeypatch.setattr(
        import_module("layerscope.metrics.mutual_knn"), "_TILE_BYTES", 2000
    )  # several tiles
    X = rng.standard_normal((30, 5)) + 1
    Y = X @ rng.standard_normal((5, 9)) + rng.standard_normal((30, 9))
    assert mutual_knn(X, Y, k, distance) == pytest.approx(want(X, Y, k, distance), abs=1e-15)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_equally_near_samples_count_by_their_index(rng, distance):
    X, Y = np.repeat(rng.standard_normal((6, 7)), 6, 0), rng.standard_normal((36, 40))
    X, Y = X[rng.permutation(36)], np.repeat(Y[:12], 3, 0)
    assert mutual_knn(X, Y, 4, distance) == pytest.approx(want(X, Y, 4, distance), abs=1e-15)
    assert mutual_knn(X, X, 4, distance) == 1


def test_a_far_sample_makes_no_others_tie_and_equal_far_ones_do(rng):
    X = rng.standard_normal((60, 8))
    Y = X @ rng.standard_normal((8, 9)) + rng.standard_normal((60, 9))
    X[0] *= 1e7
    assert mutual_knn(X, Y, 10, "euclidean") == pytest.approx(
        want(X, Y, 10, "euclidean"), abs=1e-15
    )
    X[20:40] = X[0]
    known = mutual_knn(X, np.arange(60.0)[:, None] ** 2, 5, "euclidean")
    order = rng.permutation(8)
    assert known == pytest.approx(want(X, np.arange(60.0)[:, None] ** 2, 5, "euclidean"), abs=1e-15)
    assert mutual_knn(X[:, order], np.arange(60.0)[:, None] ** 2, 5, "euclidean") == known


def test_leading_dimensions_and_a_side_that_does_not_vary(rng):
    X, Y = rng.standard_normal((2, 3, 15, 4)), torch.from_numpy(rng.standard_normal((15, 6)))
    X[1, 2] = 0.1
    values = mutual_knn(X, Y)
    assert float(values[0, 1]) == mutual_knn(X[0, 1], Y)
    assert values.isnan().tolist() == [[False] * 3, [False, False, True]]


def test_errors(rng):
    X = rng.standard_normal((10, 3))
    with pytest.raises(
        LayerscopeError, match="k=10 neighbours among 10 rows do not exist: give k from 1 to 9"
    ):
        mutual_knn(X, X)
    with pytest.raises(LayerscopeError, match="k=0"):
        mutual_knn(X, X, 0)
    with pytest.raises(LayerscopeError, match="distance='cosin'.*did you mean cosine"):
        mutual_knn(X, X, 3, "cosin")
