import numpy as np
import pytest
import torch
from tiny import one_thread

from layerscope import metrics
from layerscope.core.errors import LayerscopeError
from layerscope.metrics import (
    blocks,
    cka,
    cosine_pairs,
    cosine_similarity,
    cosine_to,
    pairs as similarity,
    similarity_matrix,
)
from layerscope.metrics.cka import inner_by_features, inner_by_grams

__all__ = ["one_thread"]


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


@pytest.mark.parametrize("shape", [(40, 4, 3), (40, 5, 60), (6, 3, 7)])
@pytest.mark.parametrize("debiased", [True, False])
def test_every_pair_is_its_cka_in_either_form(rng, small_blocks, shape, debiased):
    states = rng.standard_normal(shape).cumsum(1) + 5
    states[:, 1] += 3000
    disk, before = OnDisk(states), states.copy()
    values = similarity_matrix(disk, debiased=debiased)
    assert disk.longest < 40
    np.testing.assert_array_equal(states, before)
    want = [
        [cka(states[:, a], states[:, b], debiased=debiased) for a in range(shape[1])]
        for b in range(shape[1])
    ]
    np.testing.assert_allclose(values, want, atol=1e-10)


def test_both_forms_are_reached_and_agree(rng, small_blocks):
    states, others = rng.standard_normal((50, 4, 6)), rng.standard_normal((50, 3, 7))
    for sides in (blocks.opened(states, None, True), blocks.opened(states, others, True)):
        pairs = zip(inner_by_grams(*sides), inner_by_features(*sides), strict=True)
        for grams, features in pairs:
            np.testing.assert_allclose(grams, features, rtol=1e-12)


@pytest.mark.parametrize("shapes", [(40, 4, 3, 5, 6), (12, 3, 60, 2, 40)])
@pytest.mark.parametrize("debiased", [True, False])
def test_layers_of_two_models(rng, small_blocks, shapes, debiased):
    count, layers, width, more_layers, more_width = shapes
    states = rng.standard_normal((count, layers, width)).cumsum(1) + 3000
    others = (
        rng.standard_normal((count, more_layers, more_width)).astype(np.float32) + states[:, :1, :1]
    )
    values = similarity_matrix(OnDisk(states), "cka", others=OnDisk(others), debiased=debiased)
    want = [
        [cka(states[:, a], others[:, b], debiased=debiased) for b in range(more_layers)]
        for a in range(layers)
    ]
    np.testing.assert_allclose(values, want, atol=1e-8)


@pytest.mark.parametrize("center", [True, False])
def test_cosines_of_two_models(rng, small_blocks, center):
    states, others = rng.standard_normal((30, 4, 8)) + 1, rng.standard_normal((30, 3, 8))
    others[:, 2] = 0.5 if center else 0.0
    mean, error, count = cosine_pairs(OnDisk(states), center, OnDisk(others))
    matrix = similarity_matrix(states, "cosine_similarity", others=others, center=center)
    np.testing.assert_allclose(matrix, mean, atol=1e-12)
    assert count.tolist() == [[30, 30, 0]] * 4 and mean[:, 2].isnan().all()
    for a in range(4):
        for b in range(2):
            own = np.asarray(cosine_similarity(states[:, a], others[:, b], center))
            assert float(mean[a, b]) == pytest.approx(own.mean(), abs=1e-12)
            assert float(error[a, b]) == pytest.approx(own.std(ddof=1) / 30**0.5, abs=1e-8)


@pytest.mark.parametrize("center", [True, False])
def test_cosines_in_blocks(rng, small_blocks, center):
    states = rng.standard_normal((30, 4, 8)).cumsum(1) + 2
    for layer in (-1, 1):
        values = cosine_to(OnDisk(states), layer, center)
        for other in range(4):
            want = cosine_similarity(states[:, other], states[:, layer], center)
            np.testing.assert_allclose(values[:, other], want, atol=1e-12)
    means = similarity_matrix(OnDisk(states), "cosine_similarity", center=center)
    for a in range(4):
        for b in range(4):
            want = cosine_similarity(states[:, a], states[:, b], center).mean()
            assert float(means[a, b]) == pytest.approx(float(want), abs=1e-12)


MEASURES = [
    ("cka", {"kernel": "rbf"}),
    ("cka", {"kernel": "rbf", "debiased": False, "bandwidth": 3.0}),
    ("cca", {}),
    ("svcca", {"variance": 0.8}),
    ("pwcca", {}),
    ("pwcca", {"weights_from": "second"}),
    ("procrustes", {"kind": "distance"}),
    ("rsa", {"rdm": "cosine", "compare": "pearson"}),
    ("rsa", {}),
    ("pnka", {}),
    ("mutual_knn", {"k": 3, "distance": "euclidean"}),
    ("angular_distance", {"center": False}),
]


@pytest.mark.parametrize(("metric", "options"), MEASURES)
def test_every_similarity_is_that_of_each_pair(rng, small_blocks, monkeypatch, metric, options):
    monkeypatch.setattr(similarity, "HELD_BYTES", 3000)  # so that layers are prepared again
    states = rng.standard_normal((24, 5, 4)).cumsum(1) + 5
    others = rng.standard_normal((24, 3, 4 if metric == "angular_distance" else 7)).astype(
        np.float32
    )
    others[:, :, :2] += states[:, :3, :2]
    function = getattr(metrics, metric)
    for columns in (None, others):
        values = similarity_matrix(
            OnDisk(states), metric, others=None if columns is None else OnDisk(columns), **options
        )
        sides = states, states if columns is None else columns
        want = [
            [
                np.mean(np.asarray(function(sides[0][:, a], sides[1][:, b], **options)))
                for b in range(sides[1].shape[1])
            ]
            for a in range(5)
        ]
        np.testing.assert_allclose(
            values, want, atol=1e-7 if metric == "angular_distance" else 1e-10
        )


@pytest.mark.parametrize(("metric", "options"), MEASURES)
def test_layers_that_do_not_vary_are_nan_in_every_similarity(rng, metric, options):
    states = rng.standard_normal((20, 3, 4)).astype(np.float32)
    states[:, 1] = [0.1, 0.2, 0.3, 0.7] if options.get("center", True) else 0
    values = similarity_matrix(states, metric, **options)
    np.testing.assert_array_equal(
        values.isnan(), [[False, True, False], [True] * 3, [False, True, False]]
    )


def test_layers_are_prepared_once_where_they_can_be_held(rng, monkeypatch):
    seen = []
    measure = similarity.Measure(
        "rows", 2, lambda rows: seen.append(1) or (rows,), lambda a, b: (a[0] * b[0]).sum()
    )
    states = rng.standard_normal((10, 6, 4))
    similarity.every_two(measure, states, None)
    assert len(seen) == 6
    monkeypatch.setattr(similarity, "HELD_BYTES", 2 * 10 * 4 * 8 + 100)  # two layers at a time
    similarity.every_two(measure, states, None)
    assert len(seen) == 6 + 6 + 4 + 2


def test_a_layer_that_does_not_vary(rng, small_blocks):
    states = rng.standard_normal((30, 3, 4)).astype(np.float32)
    states[:, 0] = 0.1
    values = similarity_matrix(states)
    np.testing.assert_array_equal(
        values.isnan(), [[True] * 3, [True, False, False], [True, False, False]]
    )
    assert cosine_to(states).isnan().sum(0).tolist() == [30, 0, 0]
    assert cosine_to(states, 0).isnan().all()
    np.testing.assert_array_equal(
        similarity_matrix(states, "cosine_similarity").isnan(), values.isnan()
    )


@pytest.mark.parametrize("center", [True, False])
def test_samples_without_a_cosine_are_counted_and_not_averaged(rng, small_blocks, center):
    states = rng.standard_normal((30, 3, 4)).cumsum(1)
    states[:, 2] -= states[:, 2].mean(0)  # so that a zero vector is one around the mean too
    states[7, 2] = 0
    states[:, 2] -= (np.arange(30) == 8)[:, None] * states[:, 2].sum(0)
    states[:, 0] = 0.1 if center else 0.0
    mean, error, count = cosine_pairs(OnDisk(states), center)
    assert count.tolist() == [[0, 0, 0], [0, 30, 29], [0, 29, 29]]
    for a in range(3):
        for b in range(3):
            own = np.asarray(cosine_similarity(states[:, a], states[:, b], center))
            own = own[~np.isnan(own)]
            assert len(own) == count[a, b]
            if len(own):
                assert float(mean[a, b]) == pytest.approx(own.mean(), abs=1e-12)
                assert float(error[a, b]) == pytest.approx(
                    own.std(ddof=1) / len(own) ** 0.5, abs=1e-8
                )
    assert mean[0].isnan().all() and error[0].isnan().all()
    # some processors round sums of other blocks of rows differently in the last place
    np.testing.assert_allclose(
        similarity_matrix(states, "cosine_similarity", center=center), mean, rtol=1e-14
    )


def test_half_precision_and_tensors(rng):
    states = torch.from_numpy(rng.standard_normal((20, 3, 4))).bfloat16()
    np.testing.assert_allclose(
        similarity_matrix(states), similarity_matrix(states.double()), rtol=1e-12
    )


def test_errors(rng):
    states = rng.standard_normal((6, 3, 4))
    with pytest.raises(LayerscopeError, match=r"states has shape \(6, 3\)"):
        similarity_matrix(states[..., 0])
    with pytest.raises(
        LayerscopeError, match=r"layer 3 does not exist: these states have layers 0\.\.2"
    ):
        cosine_to(states, 3)
    with pytest.raises(LayerscopeError, match="CKA over 3 rows"):
        similarity_matrix(states[:3])
    with pytest.raises(LayerscopeError, match="states has 6 samples and others has 5"):
        similarity_matrix(states, others=states[:5])
    with pytest.raises(LayerscopeError, match=r"others has shape \(6, 3\)"):
        similarity_matrix(states, others=states[..., 0])
    for pairs in (
        cosine_pairs,
        lambda s, others: similarity_matrix(s, "cosine_similarity", others=others),
    ):
        with pytest.raises(
            LayerscopeError,
            match="states has 4 features and others has 2: cosine needs equal widths",
        ):
            pairs(states, others=states[..., :2])
    with pytest.raises(LayerscopeError, match="metric='procrusts'.*did you mean procrustes"):
        similarity_matrix(states, "procrusts")
    with pytest.raises(
        LayerscopeError, match="cka has no option 'debised', did you mean debiased.*it takes"
    ):
        similarity_matrix(states, debised=False)
    with pytest.raises(LayerscopeError, match="cca has no option 'debiased': it takes none"):
        similarity_matrix(states, "cca", debiased=False)
    with pytest.raises(LayerscopeError, match="k=10 neighbours among 6 rows"):
        similarity_matrix(states, "mutual_knn")
    states[4, 1, 2] = np.nan
    with pytest.raises(LayerscopeError, match=r"layers \[1\]"):
        similarity_matrix(states)
