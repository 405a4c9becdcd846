"""A probe that is fitted on one distribution and judged on another has seen nothing of the other."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler, normalize
from typed import refused

from layerscope.probes import linear_probe
from layerscope.probes.linear import STRENGTHS, shifted_probe

N = 240


@pytest.fixture(scope="module")
def planted():
    """States of a shallow layer that reads a class anywhere, and of a deep one whose shortcut holds on the source."""
    rng = np.random.default_rng(0)
    labels, others = rng.integers(0, 2, (2, N))

    def states(classes, true, shortcut):
        sign = 2.0 * classes[:, None] - 1
        return np.hstack(
            [true * sign * np.eye(6)[0], shortcut * sign * np.eye(6)[1]]
        ) + rng.standard_normal((N, 12))

    return {
        "labels": labels,
        "others": others,
        "deep": states(labels, 0.4, 1.8),
        "deep there": states(others, 0.4, -1.0),
    }


def strength_of(rows, labels):
    """The C of the lowest log-loss over all folds, each judged by probes without it and a fold beside it."""
    fold = np.zeros(N, dtype=int)
    for number, (_, test) in enumerate(
        StratifiedKFold(5, shuffle=True, random_state=0).split(rows, labels)
    ):
        fold[test] = number
    losses = dict.fromkeys(STRENGTHS, 0.0)
    for c in STRENGTHS:
        for number in range(5):
            train = ~np.isin(fold, (number, (number + 1) % 5))
            for judged in (number, (number + 1) % 5):
                found = fitted(rows[train], labels[train], c)(rows[fold == judged])[1]
                losses[c] += log_loss(labels[fold == judged], found)
    return min(losses, key=losses.__getitem__)


def fitted(rows, labels, c):
    scaler = StandardScaler().fit(rows)
    exact = LogisticRegression(C=c, tol=1e-9, max_iter=10_000).fit(
        scaler.transform(rows), labels
    )
    return lambda other: (
        exact.predict(scaler.transform(other)),
        exact.predict_proba(scaler.transform(other)),
    )


def test_it_equals_a_refit_by_scikit_learn_whose_strength_the_source_chose(planted):
    layer = "deep"
    rows, there = (normalize(planted[name]) for name in (layer, f"{layer} there"))
    labels, others = planted["labels"], planted["others"]
    source, target = shifted_probe(
        planted[layer], labels, planted[f"{layer} there"], others
    )
    right = fitted(rows, labels, strength_of(rows, labels))(there)[0] == others
    assert (
        target.mean == pytest.approx(right.mean(), abs=0.005)
        and (target.right == right).mean() > 0.99
    )
    plain = linear_probe(planted[layer], labels)
    assert (
        source == plain
        and (source.right == plain.right).all()
        and source.losses == plain.losses
    )
    assert (target.n, target.folds, target.n_skipped) == (N, (), 0)
    # a probe of the target itself would find what is there to be read
    assert linear_probe(planted[f"{layer} there"], others).mean > 0.75


def test_labels_of_the_target_judge_and_choose_nothing():
    rng = np.random.default_rng(1)
    labels, others = rng.integers(0, 2, (2, 200))
    noisy = np.where(rng.random(200) < 0.3, 1 - labels, labels)
    states = rng.standard_normal((200, 60)) + 0.25 * (2 * labels[:, None] - 1)
    there = rng.standard_normal((200, 60)) + 0.25 * (2 * others[:, None] - 1)
    source, target = shifted_probe(states, noisy, there, others)
    upset, opposite = shifted_probe(states, noisy, there, 1 - others)
    assert (opposite.right == ~target.right).all() and upset == source
    half, _ = shifted_probe(states, noisy, there[:50], others[:50])
    assert half == source, "nor is their number seen"


def test_labels_meet_as_text_and_classes_that_no_probe_knows_are_counted():
    rng = np.random.default_rng(2)
    labels = np.repeat([0, 1, 2], [40, 40, 3])
    states = rng.standard_normal((83, 5)) + 3 * np.eye(5)[labels]
    others = np.array(["1", "0", "2", "1", "7"])
    there = 3 * np.eye(5)[[1, 0, 2, 1, 4]]
    source, target = shifted_probe(states, labels, there, others)
    assert (source.n, source.n_skipped, target.n, target.n_skipped) == (80, 3, 3, 2)
    assert target.mean == 1
    assert source == linear_probe(states, labels)
    with refused("no target sample has a label for which the source has 5 samples"):
        shifted_probe(states, labels, there[2:3], others[2:3])


def test_a_label_of_as_many_source_samples_as_folds_is_judged():
    labels = np.repeat([0, 1], 5)
    states = np.random.default_rng(0).normal(size=(10, 3)) + 6 * labels[:, None]
    _, target = shifted_probe(states, labels, states, labels, folds=5)
    assert target.n == 10
