"""What is special of the similarities of two layers: known values, rounding, ties, and where there is none."""

import itertools
import math
from importlib import import_module

import numpy as np
import pytest
import references
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr
from typed import refused

from layerscope.metrics import (
    cca,
    cka,
    cka_minibatch,
    cosine_similarity,
    monotone_triples,
    mutual_knn,
    pnka,
    pwcca,
    rsa,
    svcca,
)


def test_a_centred_vector_is_zero_up_to_the_rounding_of_float32(rng):
    X = rng.standard_normal((3, 60, 4))
    Y = X.copy()
    Y[1] = np.float32(0.1) * (1 + 2e-8 * rng.standard_normal((60, 4)))
    others = np.delete(Y[2], [5, 6], 0).mean(0)
    Y[2, 5] = others + 1e-9
    Y[2, 6] = others + 1e-6 * np.linalg.norm(others + 1)
    undefined = cosine_similarity(X, Y).isnan()
    assert undefined.sum(-1).tolist() == [0, 60, 1] and undefined[2, 5]
    for unit in (1e-20, 1e20):  # nothing depends on the unit the states are in
        assert cosine_similarity(X * unit, Y * unit).isnan().equal(undefined)


def test_ranks_may_differ_from_layer_to_layer(rng):
    X, Y = rng.standard_normal((2, 3, 30, 4)), rng.standard_normal((2, 3, 30, 5))
    X[0, 1, :, 3] = X[0, 1, :, 0] + 1  # rank 3
    for function in (cca, svcca, pwcca):
        together = function(X, Y)
        for layer in (0, 0), (0, 1), (1, 2):
            alone = function(X[layer], Y[layer])
            assert float(together[layer]) == pytest.approx(alone, rel=1e-10)
    exact = references.cca(X[0, 1, :, :3], Y[0, 1])
    assert cca(X[0, 1], Y[0, 1]) == pytest.approx(exact, rel=1e-9)


def test_a_direction_within_the_rounding_of_float32_is_none(rng):
    X, Y = rng.standard_normal((2, 50, 5))
    plane = X - X.mean(1, keepdims=True)  # as after a norm
    exact = references.cca(plane[:, :4], Y)
    assert cca(plane.astype(np.float32), Y) == pytest.approx(exact, rel=1e-6)


def test_trap_03_minibatches_of_cka_are_summed_before_the_ratio(rng):
    X = rng.standard_normal((30, 5))
    Y = X + rng.standard_normal((30, 5))
    sums = np.zeros(3)
    for low in range(0, 30, 10):
        K, L = (references.linear_gram(side[low : low + 10]) for side in (X, Y))
        sums += [references.hsic_1(*pair) for pair in ((K, L), (K, K), (L, L))]
    exact = sums[0] / math.sqrt(sums[1] * sums[2])
    assert cka_minibatch(X, Y, 10) == pytest.approx(exact, rel=1e-9)
    assert cka_minibatch(X, Y, 50) == pytest.approx(cka(X, Y), rel=1e-12)


@pytest.mark.parametrize("widths", [(5, 7), (80, 90), (5, 90)])
def test_wide_and_narrow_layers_have_the_cka_and_pnka_of_one_definition(rng, widths):
    """Narrow pairs go through features, wide ones through Grams."""
    X = rng.standard_normal((20, widths[0])) + 3000
    Y = X[:, :5] @ rng.standard_normal((5, widths[1])) + rng.standard_normal(
        (20, widths[1])
    )
    for debiased in (True, False):
        exact = references.cka(X, Y, debiased=debiased)
        assert cka(X, Y, debiased=debiased) == pytest.approx(exact, rel=1e-9)
        assert cka(Y, X, debiased=debiased) == pytest.approx(exact, rel=1e-9)
    np.testing.assert_allclose(pnka(X, Y), references.pnka(X, Y), rtol=1e-8)


def test_equal_samples_of_rsa_tie_at_their_mean_rank(rng):
    X, Y = rng.integers(0, 2, (24, 4)), rng.standard_normal((24, 3))
    X[:, 0] = 1 - X[:, 1]
    X, Y = np.repeat(X, 3, 0), np.repeat(Y, 3, 0)
    distances = (
        np.round(pdist(X, "correlation"), 12),
        np.round(pdist(Y, "correlation"), 12),
    )
    assert len(np.unique(distances[0])) < 10
    assert rsa(X, Y) == pytest.approx(spearmanr(*distances).statistic, rel=1e-9)
    order = rng.permutation(72)
    assert rsa(X[order], Y[order]) == pytest.approx(rsa(X, Y), rel=1e-12)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("k", [1, 4, 29])
def test_mutual_neighbours_in_several_tiles(rng, distance, k, monkeypatch):
    module = import_module("layerscope.metrics.mutual_knn")
    monkeypatch.setattr(module, "_TILE_BYTES", 2000)
    X = rng.standard_normal((30, 5)) + 1
    Y = X @ rng.standard_normal((5, 9)) + rng.standard_normal((30, 9))
    exact = references.mutual_knn(X, Y, k, distance)
    assert mutual_knn(X, Y, k, distance) == pytest.approx(exact, abs=1e-15)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_equally_near_samples_count_by_their_index(rng, distance):
    X, Y = np.repeat(rng.standard_normal((6, 7)), 6, 0), rng.standard_normal((36, 40))
    X, Y = X[rng.permutation(36)], np.repeat(Y[:12], 3, 0)
    exact = references.mutual_knn(X, Y, 4, distance)
    assert mutual_knn(X, Y, 4, distance) == pytest.approx(exact, abs=1e-15)
    assert mutual_knn(X, X, 4, distance) == 1


def test_a_far_sample_makes_no_others_tie_and_equal_far_ones_do(rng):
    def agrees(X, Y, k):
        exact = references.mutual_knn(X, Y, k, "euclidean")
        return mutual_knn(X, Y, k, "euclidean") == pytest.approx(exact, abs=1e-15)

    X = rng.standard_normal((60, 8))
    Y = X @ rng.standard_normal((8, 9)) + rng.standard_normal((60, 9))
    squares, order = np.arange(60.0)[:, None] ** 2, rng.permutation(8)
    X[0] *= 1e7
    assert agrees(X, Y, 10)
    X[20:40] = X[0]
    assert agrees(X, squares, 5)
    value = mutual_knn(X, squares, 5, "euclidean")
    assert mutual_knn(X[:, order], squares, 5, "euclidean") == value


def test_monotone_triples_are_those_of_a_loop():
    states = np.random.default_rng(0).normal(size=(4, 6, 8))
    unit = states / np.linalg.norm(states, axis=-1, keepdims=True)
    for sample, shares in zip(unit, monotone_triples(states), strict=True):
        cosine = sample @ sample.T
        for last in range(2, 6):
            pairs = itertools.combinations(range(last), 2)
            rises = [cosine[a, last] <= cosine[b, last] for a, b in pairs]
            assert float(shares[last - 2]) == pytest.approx(np.mean(rises))
    assert monotone_triples(states[:, :3]).shape == (4, 1)
    with refused("3 layers or more"):
        monotone_triples(states[:, :2])
