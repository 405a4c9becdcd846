"""The probe on principal components: fitted on the other folds alone, equal to a reference, blind to what is small."""

import numpy as np
import pytest
from tiny import one_thread

from layerscope.probes import linear, linear_probe
from layerscope.probes.linear import components_probe
from layerscope.probes.scores import stratified

__all__ = ["one_thread"]


def planted(n: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """States [n, 64] whose first 16 dimensions know one of two labels, amid others that are larger and know nothing."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    states = rng.normal(size=(n, 64)) * np.r_[np.ones(16), 6 * np.ones(48)]
    states[:, :16] += np.outer(2 * labels - 1, rng.normal(size=16))
    return states, labels


def test_what_is_known_in_small_dimensions_is_in_the_prefix_and_not_in_the_components():
    states, labels = planted()
    prefix, whole = linear_probe(states[:, :16], labels).mean, linear_probe(states, labels).mean
    assert prefix > 0.95
    assert whole > 0.9
    assert components_probe(states, labels, [16])[16].mean < 0.65
    assert linear_probe(states[:, -16:], labels).mean < 0.65, "the wrong end"


def test_what_is_large_is_in_few_components_and_not_in_the_prefix():
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 200)
    states = rng.normal(size=(200, 64))
    states[:, 32:] += np.outer(2 * labels - 1, 3 * rng.normal(size=32))
    assert components_probe(states, labels, [4])[4].mean > 0.97
    assert linear_probe(states[:, :4], labels).mean < 0.65


def test_components_are_those_of_the_other_folds(monkeypatch: pytest.MonkeyPatch):
    """Inner products, which no turn changes, against a singular value decomposition in float64."""
    states, labels = planted(60)
    seen: dict[int, np.ndarray] = {}
    judged = linear.linearly_judged

    def watched(rows, classes, fold, seed, only):
        seen[only[0]] = rows
        return judged(rows, classes, fold, seed, only)

    monkeypatch.setattr(linear, "linearly_judged", watched)
    found = components_probe(states.astype(np.float32), labels, [8], seed=3)[8]
    assert found.n == 60
    rows = states.astype(np.float32).astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    fold = stratified(labels, 5, 3)

    def gram(train: np.ndarray) -> np.ndarray:
        _, _, axes = np.linalg.svd(train - train.mean(0), full_matrices=False)
        scores = (rows - train.mean(0)) @ axes[:8].T
        scores /= np.linalg.norm(scores, axis=1, keepdims=True)
        return scores @ scores.T

    for number, reduced in seen.items():
        np.testing.assert_allclose(reduced @ reduced.T, gram(rows[fold != number]), atol=5e-6)
        assert not np.allclose(reduced @ reduced.T, gram(rows), atol=1e-3), "fitted on all rows it is another"
    assert sorted(seen) == list(range(5))


def test_all_components_know_what_all_dimensions_do():
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 3, 150)
    states = rng.normal(size=(150, 16)) + rng.normal(size=(3, 16))[labels]
    whole, found = linear_probe(states, labels), components_probe(states, labels, [16])[16]
    assert found.mean == pytest.approx(whole.mean, abs=2 * whole.stderr)
    assert (found.n, found.n_skipped) == (whole.n, whole.n_skipped)
