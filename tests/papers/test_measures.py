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


def test_measures_of_random_paths_are_those_of_plain_loops():
    states = np.random.default_rng(0).normal(size=(20, 5, 8)).cumsum(1)
    shares, ratios = monotone_share(states), norm_ratio(states)
    steady, away = steady_norm(states), line_distance(states)
    for i, path in enumerate(states):
        rises = [
            cosine(a, c) <= cosine(b, c) for a, b, c in itertools.combinations(path, 3)
        ]
        assert shares[i] == pytest.approx(np.mean(rises))
        norms = [np.linalg.norm(layer) for layer in path]
        for layer in range(4):
            step = np.linalg.norm(path[layer + 1] - path[layer])
            assert ratios[i, layer] == pytest.approx(norms[layer] / step)
            is_steady = abs(norms[layer + 1] / norms[layer] - 1) <= 0.1
            assert steady[i, layer] == is_steady
        line = path[-1] - path[0]
        for layer in (1, 2, 3):
            start = path[layer] - path[0]
            along = start @ line / (line @ line)
            distance = np.linalg.norm(start - along * line) / np.linalg.norm(line)
            assert away[i, layer - 1] == pytest.approx(distance)
