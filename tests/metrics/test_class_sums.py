"""Neural collapse, of all states at once and from sums over chunks, against its definition in numpy."""

import numpy as np
import pytest
import torch

from layerscope.metrics import neural_collapse
from layerscope.metrics.neural_collapse import ClassSums


def defined(states, labels):
    """Return NC1 and NC2 of states [N, D] by their definitions."""
    near = states - states[0]
    names = np.unique(labels)
    means = np.stack([near[labels == name].mean(0) for name in names])
    between, within = means - near.mean(0), near - means[np.searchsorted(names, labels)]
    _, sizes, directions = np.linalg.svd(
        between / len(names) ** 0.5, full_matrices=False
    )
    kept = sizes > 1e-5 * sizes[0]
    nc1 = ((within @ directions[kept].T) ** 2).mean(0) / sizes[kept] ** 2
    norms = np.linalg.norm(between, axis=1)
    cosines = (between @ between.T / norms / norms[:, None])[
        np.triu_indices(len(names), 1)
    ]
    return {
        "nc1": nc1.sum() / len(names),
        "nc2_norms": norms.std() / norms.mean(),
        "nc2_angles": np.abs(cosines + 1 / (len(names) - 1)).mean(),
    }


# samples, width, classes, offset, spread within classes, factor of one direction of them
CASES = {
    "plain": (300, 20, 7, 0.0, 1.0, 1.0),
    "offset": (300, 20, 7, 1e6, 1.0, 1.0),
    "collapsed": (300, 20, 7, 10.0, 1e-5, 1.0),
    "few samples": (60, 200, 9, 3.0, 1.0, 1.0),
    "many classes": (900, 48, 300, 5.0, 1.0, 1.0),
    "one direction": (300, 30, 11, 3.0, 1.0, 1e3),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_sums_over_chunks_of_two_processes_are_those_of_all_states(rng, case):
    n, width, classes, offset, spread, factor = case
    others = rng.integers(classes, size=n - 2 * classes)
    labels = rng.permutation(np.concatenate([np.arange(classes).repeat(2), others]))
    along, _ = np.linalg.qr(rng.normal(size=(width, width)))
    scale = np.r_[factor, np.ones(width - 1)]
    centres = rng.normal(size=(2, classes, width))[:, labels]
    layers = centres + spread * rng.normal(size=(2, n, width)) * scale @ along + offset
    parts = [ClassSums.empty(classes, 2, width), ClassSums.empty(classes, 2, width)]
    for chunk, start in enumerate(range(0, n, 37)):
        rows = slice(start, start + 37)
        of_chunk = torch.from_numpy(labels[rows])
        parts[chunk % 2].update(torch.from_numpy(layers[:, rows]), of_chunk)
    summed = (parts[0] + parts[1]).collapse()
    at_once = neural_collapse(layers, labels)
    assert summed is not None and summed.nc3 is None
    for layer in range(2):
        for name, exact in defined(layers[layer], labels).items():
            for value in (summed, at_once):
                part = getattr(value, name)[layer].item()
                assert part == pytest.approx(exact, rel=1e-9), name


def test_a_simplex_is_collapsed_whatever_its_size():
    corners, labels = np.eye(4) - 1 / 4, np.repeat(np.arange(4), 5)
    value = neural_collapse(7 * corners[labels], labels, 3 * corners)
    for part in (value.nc1, value.nc2_norms, value.nc2_angles, value.nc3):
        assert float(part) == pytest.approx(0, abs=1e-12)


def test_one_class_has_no_collapse_and_no_state_changes_nothing():
    sums = ClassSums.empty(2, 4)
    sums.update(torch.empty(0, 4), torch.empty(0, dtype=torch.int64))
    assert sums.collapse() is None and sums.counts.tolist() == [0, 0]
    sums.update(torch.eye(4), torch.zeros(4, dtype=torch.int64))
    assert sums.collapse() is None and sums.counts.tolist() == [4, 0]


def test_states_that_are_all_equal_have_no_collapse(rng):
    """As of class tokens at the embedding output: there is nothing to divide by."""
    equal = np.tile(rng.normal(size=5).astype("float32"), (30, 1))
    states, labels = np.stack([equal, rng.normal(size=(30, 5))]), np.arange(30) % 3
    sums = ClassSums.empty(3, 2, 5)
    for block in (slice(11), slice(11, None)):
        sums.update(torch.from_numpy(states[:, block]), torch.from_numpy(labels[block]))
    for value in (sums.collapse(), neural_collapse(states, labels)):
        parts = torch.stack([value.nc1, value.nc2_norms, value.nc2_angles])
        assert parts.isnan().tolist() == [[True, False]] * 3
