import dataclasses
import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from layerscope.errors import LayerscopeError
from layerscope.evaluation import ProbeScore, knn_probe, linear_probe


@pytest.fixture
def clusters():
    rng = np.random.default_rng(11)
    labels = rng.integers(0, 6, 240)
    return rng.standard_normal((6, 12))[labels] + rng.standard_normal((240, 12)), labels


def test_knn_agrees_with_a_plain_count(clusters):
    states, labels = clusters
    rows = states / np.linalg.norm(states, axis=1, keepdims=True)
    folds = []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=3).split(rows, labels):
        nearest = np.argsort(-(rows[test] @ rows[train].T), axis=1)[:, :7]
        votes = [np.bincount(labels[train][near], minlength=6).argmax() for near in nearest]
        folds.append((votes == labels[test]).mean())
    score = knn_probe(states, labels, k=7, seed=3)
    assert score.folds == pytest.approx(folds)
    assert score.mean == pytest.approx(np.mean(folds)) and score.n == 240


def test_linear_probe_is_converged_where_it_counts(clusters):
    states, labels = clusters
    rows = states / np.linalg.norm(states, axis=1, keepdims=True)
    folds = []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(rows, labels):
        scaler = StandardScaler().fit(rows[train])
        exact = LogisticRegression(tol=1e-9, max_iter=10_000).fit(scaler.transform(rows[train]), labels[train])
        folds.append((exact.predict(scaler.transform(rows[test])) == labels[test]).mean())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        score = linear_probe(states, labels)
    assert score.folds == pytest.approx(folds, abs=0.021)
    assert score.mean == pytest.approx(np.mean(folds), abs=0.005)


def test_score_is_an_interval_over_all_held_out_samples(clusters):
    score = linear_probe(*clusters)
    p, z, n = score.mean, 1.959963984540054, score.n
    centre, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    assert score.low == pytest.approx((centre - half) / (1 + z * z / n))
    assert score.high == pytest.approx((centre + half) / (1 + z * z / n))
    assert score.stderr == pytest.approx(np.sqrt(p * (1 - p) / n))
    assert dataclasses.is_dataclass(ProbeScore) and len(score.folds) == 5


def test_noise_is_at_chance_and_signal_is_not(clusters):
    _, labels = clusters
    noise = np.random.default_rng(0).standard_normal((240, 12))
    for probe in (linear_probe, knn_probe):
        assert probe(noise, labels).low < 1 / 6 < probe(noise, labels).high
        assert probe(*clusters).low > 0.4


def test_folds_do_not_depend_on_the_states(clusters):
    states, labels = clusters
    assert linear_probe(states, labels) == linear_probe(5 * states, labels)
    assert knn_probe(states, labels, seed=1) != knn_probe(states, labels, seed=2)
    names = np.array([f"class {y}" for y in labels])
    assert knn_probe(states, names) == knn_probe(states, labels)


def test_small_classes_are_left_out_and_counted(clusters):
    states, labels = clusters
    rare = labels.copy()
    rare[:4], rare[4:6] = 77, 88
    for probe in (linear_probe, knn_probe):
        score = probe(states, rare)
        assert (score.n, score.n_skipped) == (234, 6)
        assert score == dataclasses.replace(probe(states[6:], labels[6:]), n_skipped=6)


def test_errors(clusters):
    states, labels = clusters
    with pytest.raises(LayerscopeError, match="fewer than 2 classes have 5 members"):
        linear_probe(states, np.arange(240))
    with pytest.raises(LayerscopeError, match="k=500 neighbours out of 192"):
        knn_probe(states, labels, k=500)
    with pytest.raises(LayerscopeError, match="folds=1"):
        knn_probe(states, labels, folds=1)
    with pytest.raises(LayerscopeError, match=r"labels \(7,\)"):
        linear_probe(states, labels[:7])
