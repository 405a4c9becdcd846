"""Similarities of every two layers, read from disk in blocks, against those of each pair alone."""

import numpy as np
import pytest

from layerscope import metrics
from layerscope.metrics import (
    blocks,
    cosine_pairs,
    cosine_similarity,
    cosine_to,
    pairs as similarity,
    similarity_matrix,
)
from layerscope.metrics.layer_products import inner_by_features, inner_by_grams
from layerscope.metrics.pairs import MOST
from layerscope.runs.registry import METRICS

MEASURES = [
    ("cka", {}),
    ("cka", {"debiased": False}),
    ("cka", {"kernel": "rbf"}),
    ("cca", {}),
    ("svcca", {"variance": 0.8}),
    ("pwcca", {}),
    ("pwcca", {"weights_from": "second"}),
    ("procrustes", {"kind": "distance"}),
    ("rsa", {}),
    ("pnka", {}),
    ("linear_map", {}),
    ("mutual_knn", {"k": 3, "distance": "euclidean"}),
    ("cosine_similarity", {}),
    ("angular_distance", {"center": False}),
]
EQUAL_WIDTHS = ("cosine_similarity", "angular_distance")


class OnDisk:
    """States that allow nothing but reading rows."""

    def __init__(self, states):
        self._states, self.shape, self.longest = states, states.shape, 0

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        self.longest = max(self.longest, rows.stop - rows.start)
        return self._states[rows]


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(blocks, "TILE_BYTES", 1000)
    # so that layers are prepared again
    monkeypatch.setattr(similarity, "HELD_BYTES", 3000)


@pytest.mark.parametrize("shape", [(40, 5, 4), (24, 3, 60)])
@pytest.mark.parametrize("metric, options", MEASURES)
def test_every_similarity_is_that_of_each_pair(
    rng, small_blocks, shape, metric, options
):
    count, depth, width = shape
    states = rng.standard_normal(shape).cumsum(1) + 5
    states[:, 1, 0] += 3000
    states[0, 2] *= 500
    other_width = width if metric in EQUAL_WIDTHS else 7
    others = rng.standard_normal((count, 3, other_width)).astype(np.float32)
    others[:, :, :2] += states[:, :3, :2]
    function = getattr(metrics, metric)
    for right in (states, others):
        disk, before = OnDisk(states), states.copy()
        given = None if right is states else OnDisk(right)
        values = similarity_matrix(disk, metric, others=given, **options)
        for a, b in np.ndindex(depth, right.shape[1]):
            exact = np.mean(np.asarray(function(states[:, a], right[:, b], **options)))
            assert float(values[a, b]) == pytest.approx(exact, abs=1e-7, rel=1e-7)
        np.testing.assert_array_equal(states, before)
        if metric == "cka" and "kernel" not in options:
            assert disk.longest < count


@pytest.mark.parametrize("metric, options", MEASURES)
def test_layers_that_do_not_vary_are_nan_in_every_similarity(rng, metric, options):
    states = rng.standard_normal((20, 3, 4)).astype(np.float32)
    states[:, 1] = [0.1, 0.2, 0.3, 0.7] if options.get("center", True) else 0
    values = similarity_matrix(states, metric, **options)
    flat = [[False, True, False], [True] * 3, [False, True, False]]
    assert values.isnan().tolist() == flat


def test_both_forms_of_cka_are_reached_and_agree(rng, small_blocks):
    states, others = rng.standard_normal((50, 4, 6)), rng.standard_normal((50, 3, 7))
    for sides in (
        blocks.opened(states, None, True),
        blocks.opened(states, others, True),
    ):
        pairs = zip(inner_by_grams(*sides), inner_by_features(*sides), strict=True)
        for grams, features in pairs:
            np.testing.assert_allclose(grams, features, rtol=1e-12)


@pytest.mark.parametrize("center", [True, False])
def test_cosines_to_one_layer_are_those_of_each_sample(rng, small_blocks, center):
    states = rng.standard_normal((30, 4, 8)).cumsum(1) + 2
    for layer in (-1, 1):
        values = cosine_to(OnDisk(states), layer, center)
        for other in range(4):
            exact = cosine_similarity(states[:, other], states[:, layer], center)
            np.testing.assert_allclose(values[:, other], exact, atol=1e-12)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("two_models", [True, False])
def test_samples_without_a_cosine_are_counted_and_not_averaged(
    rng, small_blocks, center, two_models
):
    states = rng.standard_normal((30, 3, 4)).cumsum(1)
    # so that a zero vector is one around the mean too
    states[:, 2] -= states[:, 2].mean(0)
    states[7, 2] = 0
    states[:, 2] -= (np.arange(30) == 8)[:, None] * states[:, 2].sum(0)
    states[:, 0] = 0.1 if center else 0.0
    others = states[:, ::-1].copy() if two_models else states
    mean, error, count = cosine_pairs(
        OnDisk(states), center, OnDisk(others) if two_models else None
    )
    assert {*count.flatten().tolist()} == {0, 29, 30}
    for a, b in np.ndindex(3, 3):
        values = np.asarray(cosine_similarity(states[:, a], others[:, b], center))
        values = values[~np.isnan(values)]
        assert len(values) == count[a, b]
        if len(values) == 0:
            assert mean[a, b].isnan() and error[a, b].isnan()
            continue
        stderr = values.std(ddof=1) / len(values) ** 0.5
        assert float(mean[a, b]) == pytest.approx(values.mean(), abs=1e-12)
        assert float(error[a, b]) == pytest.approx(stderr, abs=1e-8)


def test_more_samples_than_are_held_are_counted():
    rows = METRICS["rsa"].how.rows(np.arange(10_000) + 5)
    assert len(rows) == len(set(rows)) == MOST and rows[0] == 5 and rows[-1] > 10_000
    assert len(METRICS["cka"].how.rows(np.arange(10_000))) == 10_000
