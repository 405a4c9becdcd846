import dataclasses
import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler, normalize
from typed import refused

from layerscope.probes import knn_probe, linear_probe
from layerscope.probes.linear import (
    SEARCHED,
    SLACK,
    STRENGTHS,
    linear_probe_hits,
    linearly_judged,
    thinned,
)


@pytest.fixture
def clusters():
    rng = np.random.default_rng(11)
    labels = rng.integers(0, 6, 240)
    return rng.standard_normal((6, 12))[labels] + rng.standard_normal((240, 12)), labels


def _most(labels):
    """The label that is there most often; of several the one that a nearer neighbour has than the others do."""
    counts = {
        label: (list(labels).count(label), -list(labels).index(label))
        for label in labels
    }
    return max(counts, key=counts.get)


def test_knn_agrees_with_a_plain_count(clusters):
    states, labels = clusters
    rows = normalize(states)
    folds = []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=3).split(
        rows, labels
    ):
        nearest = np.argsort(-(rows[test] @ rows[train].T), axis=1)[:, :7]
        votes = [_most(labels[train][near]) for near in nearest]
        folds.append((votes == labels[test]).mean())
    score = knn_probe(states, labels, k=7, seed=3)
    assert score.folds == pytest.approx(folds)
    assert score.mean == pytest.approx(np.mean(folds)) and score.n == 240


def test_linear_probe_is_converged_where_it_counts(clusters):
    states, labels = clusters
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        score = linear_probe(states, labels)
    rows = normalize(states)
    folds = []
    splits = StratifiedKFold(5, shuffle=True, random_state=0).split(rows, labels)
    for (train, test), strength in zip(splits, score.strengths, strict=True):
        scaler = StandardScaler().fit(rows[train])
        exact = LogisticRegression(C=strength, tol=1e-9, max_iter=10_000)
        exact.fit(scaler.transform(rows[train]), labels[train])
        folds.append(
            (exact.predict(scaler.transform(rows[test])) == labels[test]).mean()
        )
    assert score.folds == pytest.approx(folds, abs=0.021)
    assert score.mean == pytest.approx(np.mean(folds), abs=0.005)


def test_a_probe_of_many_classes_is_no_weaker_than_scikit_learns():
    rng = np.random.default_rng(0)
    labels, decay = np.repeat(np.arange(60), 10), np.arange(1, 65.0) ** -1.5
    centres, noise = rng.standard_normal((60, 64)), 0.7 * rng.standard_normal((600, 64))
    turn = np.linalg.qr(rng.standard_normal((64, 64)))[0]
    states = (
        decay * (centres[labels] + noise)
    ) @ turn + 0.3  # correlated features, as those of a model are
    score = linear_probe(states, labels)
    exact = make_pipeline(
        Normalizer(), StandardScaler(), LogisticRegression(C=10, max_iter=2000)
    )
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    assert score.mean > cross_val_score(exact, states, labels, cv=folds).mean() - 0.01


def test_the_strength_of_a_fold_has_about_the_lowest_loss_on_its_neighbours(clusters):
    states, labels = clusters
    rows, fold = states.astype(float), np.arange(240) % 5
    _, found, _ = linearly_judged(rows, labels, fold, seed=0)
    for number, strength in enumerate(found):
        losses = []
        for c in STRENGTHS:
            exact = make_pipeline(
                StandardScaler(), LogisticRegression(C=c, tol=1e-6, max_iter=10_000)
            )
            beside = [(number + 1) % 5, (number - 1) % 5]
            probabilities = [
                exact.fit(rows[train], labels[train]).predict_proba(rows[fold == other])
                for other, train in (
                    (other, ~np.isin(fold, (number, other))) for other in beside
                )
            ]
            losses.append(
                sum(
                    log_loss(labels[fold == o], p)
                    for o, p in zip(beside, probabilities, strict=True)
                )
            )
        about = [
            c
            for c, loss in zip(STRENGTHS, losses, strict=True)
            if loss <= SLACK * min(losses)
        ]
        assert strength == pytest.approx(about[0]) or losses[
            STRENGTHS.index(strength)
        ] == pytest.approx(SLACK * min(losses), rel=0.01)
    other = labels.copy()
    # what a fold holds has no part in its own strength
    other[fold == 2] = np.roll(labels[fold == 2], 1)
    assert linearly_judged(rows, other, fold, seed=0)[1][2] == found[2]


def test_many_samples_choose_the_strength_by_an_even_share_of_every_class():
    rng = np.random.default_rng(0)
    classes = np.where(np.arange(6000) < 6, 2, rng.integers(0, 2, 6000))
    fold = np.arange(6000) % 5
    kept = thinned(classes, fold, seed=1)
    assert SEARCHED <= len(kept) <= SEARCHED + 15 and len(np.unique(kept)) == len(kept)
    assert set(fold[kept][classes[kept] == 2]) == set(range(5))
    assert (classes[kept] == 0).mean() == pytest.approx((classes == 0).mean(), abs=0.01)
    rows = rng.standard_normal((6000, 4)) + classes[:, None]
    right, strengths, _ = linearly_judged(rows, classes, fold, seed=0)
    assert right.mean() > 0.8 and len(strengths) == 5


def test_a_fold_that_leaves_one_class_is_judged_all_the_same():
    classes = np.repeat([0, 1], [28, 2])
    right, *_ = linearly_judged(
        np.random.default_rng(0).standard_normal((30, 3)),
        classes,
        np.repeat([0, 1, 2], 10),
        0,
    )
    assert right[:20].mean() > 0.8 and not right[28:].any()


@pytest.mark.parametrize("known", [2, 3])
@pytest.mark.filterwarnings("error")
def test_a_sample_far_off_is_judged_without_the_logarithm_of_zero(known):
    classes = np.arange(60) % known
    rows = np.eye(3)[classes] + 0.1 * np.random.default_rng(0).standard_normal((60, 3))
    # surely of class 1 to a probe that was trained without it, and it is of class 0
    rows[0] = 1e5 * np.eye(3)[1]
    right, *_ = linearly_judged(rows, classes, np.arange(60) // 12, seed=0)
    assert not right[0] and right[12:].all()


def test_score_is_an_interval_over_all_held_out_samples(clusters):
    score = linear_probe(*clusters)
    p, z, n = score.mean, 1.959963984540054, score.n
    centre, half = (
        p + z * z / (2 * n),
        z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)),
    )
    assert score.low == pytest.approx((centre - half) / (1 + z * z / n))
    assert score.high == pytest.approx((centre + half) / (1 + z * z / n))
    assert score.stderr == pytest.approx(np.sqrt(p * (1 - p) / n))
    assert len(score.folds) == 5


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
    with refused("fewer than 2 classes have 5 members"):
        linear_probe(states, np.arange(240))
    with refused("k=500 neighbours out of 192"):
        knn_probe(states, labels, k=500)
    with refused("folds is 1"):
        knn_probe(states, labels, folds=1)
    with refused("folds is 2: give at least 3"):
        linear_probe(states, labels, folds=2)
    right, fold, *_ = linear_probe_hits(states, labels, folds=3, seed=0)
    assert len(linear_probe(states, labels, folds=3).folds) == 3 == len({*fold})
    assert right.mean() > 0.5
    with refused(r"labels of shape \(7,\)"):
        linear_probe(states, labels[:7])
