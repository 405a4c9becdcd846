"""Neural collapse from sums over chunks, against the same of all states at once, written out in numpy."""

import numpy as np
import pytest
import torch

from layerscope.metrics import neural_collapse
from layerscope.metrics.class_sums import ClassSums


def plain(states: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return NC1 and NC2 of states [N, D] by their definitions."""
    near = states - states[0]
    names = np.unique(labels)
    means = np.stack([near[labels == name].mean(0) for name in names])
    between, within = means - near.mean(0), near - means[np.searchsorted(names, labels)]
    _, sizes, directions = np.linalg.svd(between / len(names) ** 0.5, full_matrices=False)
    kept = sizes > 1e-5 * sizes[0]
    nc1 = ((within @ directions[kept].T) ** 2).mean(0) / sizes[kept] ** 2
    norms = np.linalg.norm(between, axis=1)
    cosines = (between @ between.T / norms / norms[:, None])[np.triu_indices(len(names), 1)]
    angles = np.abs(cosines + 1 / (len(names) - 1)).mean()
    return {
        "nc1": nc1.sum() / len(names),
        "nc2_norms": norms.std() / norms.mean(),
        "nc2_angles": angles,
    }


CASES = {  # samples, width, classes, offset, spread within classes, factor of one direction of them
    "plain": (300, 20, 7, 0.0, 1.0, 1.0),
    "offset": (300, 20, 7, 1e6, 1.0, 1.0),
    "collapsed": (300, 20, 7, 10.0, 1e-5, 1.0),
    "few samples": (60, 200, 9, 3.0, 1.0, 1.0),
    "many classes": (900, 48, 300, 5.0, 1.0, 1.0),
    "one direction": (300, 30, 11, 3.0, 1.0, 1e3),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_sums_over_chunks_are_those_of_all_states(case: tuple[int, int, int, float, float, float]):
    n, width, classes, offset, spread, factor = case
    rng = np.random.default_rng(0)
    labels = np.concatenate(
        [np.arange(classes).repeat(2), rng.integers(classes, size=n - 2 * classes)]
    )
    rng.shuffle(labels)
    along, _ = np.linalg.qr(rng.normal(size=(width, width)))
    scale = np.r_[factor, np.ones(width - 1)]
    layers = np.stack(
        [
            rng.normal(size=(classes, width))[labels]
            + spread * rng.normal(size=(n, width)) * scale @ along
            + offset
            for _ in range(2)
        ]
    )
    seen: list[dict[int, int]] = [
        {},
        {},
    ]  # of each process, its classes in the order in which they came
    parts = [ClassSums.empty(0, 2, width), ClassSums.empty(0, 2, width)]
    for number, start in enumerate(range(0, n, 37)):
        own, here = number % 2, slice(start, start + 37)
        known = seen[own]
        numbers = [known.setdefault(label, len(known)) for label in labels[here].tolist()]
        parts[own].update(torch.from_numpy(layers[:, here]), torch.tensor(numbers))
    every = {label: i for i, label in enumerate(dict.fromkeys([*seen[0], *seen[1]]))}
    renamed = parts[1].at(torch.tensor([every[label] for label in seen[1]]), len(every))
    found = (parts[0] + renamed).collapse()
    exact = neural_collapse(layers, labels)
    assert found is not None and found.nc3 is None
    for layer in range(2):
        for name, wanted in plain(layers[layer], labels).items():
            assert getattr(found, name)[layer].item() == pytest.approx(wanted, rel=1e-9), name
            assert getattr(exact, name)[layer].item() == pytest.approx(wanted, rel=1e-9), name


def test_one_class_has_no_collapse_and_no_state_changes_nothing():
    sums = ClassSums.empty(0, 4)
    sums.update(torch.empty(0, 4), torch.empty(0, dtype=torch.int64))
    assert sums.collapse() is None and len(sums.counts) == 0
    sums.update(torch.eye(4), torch.zeros(4, dtype=torch.int64))
    assert sums.collapse() is None and sums.counts.tolist() == [4.0]


def test_states_that_are_all_equal_have_no_collapse(rng):
    states = np.stack(
        [np.tile(rng.normal(size=5).astype("float32"), (30, 1)), rng.normal(size=(30, 5))]
    )
    labels = (
        np.arange(30) % 3
    )  # as of class tokens at the embedding output: there is nothing to divide by
    sums = ClassSums.empty(0, 2, 5)
    for block in (slice(11), slice(11, None)):
        sums.update(torch.from_numpy(states[:, block]), torch.from_numpy(labels[block]))
    for found in (sums.collapse(), neural_collapse(states, labels)):
        values = torch.stack([found.nc1, found.nc2_norms, found.nc2_angles])
        assert values.isnan().tolist() == [[True, False]] * 3
