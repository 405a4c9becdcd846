"""What the theorems need of each sample's path through the layers, against plain loops and planted paths."""

import itertools

import numpy as np
import pytest

from layerscope_papers.measures import (
    line_distance,
    monotone_share,
    norm_ratio,
    steady_norm,
)


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.fixture
def states():
    return np.random.default_rng(0).normal(size=(20, 5, 8)).cumsum(1)


def test_measures_of_random_paths_are_those_of_plain_loops(states):
    for path, share, ratios, steady, away in zip(
        states,
        monotone_share(states),
        norm_ratio(states),
        steady_norm(states),
        line_distance(states),
        strict=True,
    ):
        triples = itertools.combinations(range(len(path)), 3)
        rises = [
            cosine(path[a], path[c]) <= cosine(path[b], path[c]) for a, b, c in triples
        ]
        assert share == pytest.approx(np.mean(rises))
        norms = [np.linalg.norm(layer) for layer in path]
        for layer in range(len(path) - 1):
            assert ratios[layer] == pytest.approx(
                norms[layer] / np.linalg.norm(path[layer + 1] - path[layer])
            )
            assert steady[layer] == (abs(norms[layer + 1] / norms[layer] - 1) <= 0.1)
        line = path[-1] - path[0]
        for layer in range(1, len(path) - 1):
            along = (path[layer] - path[0]) @ line / (line @ line)
            distance = np.linalg.norm(path[layer] - path[0] - along * line)
            assert away[layer - 1] == pytest.approx(distance / np.linalg.norm(line))
