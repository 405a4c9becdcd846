"""How each sample's vector moves from layer to layer: theorem 2.1 and assumption 1, against plain loops."""

import itertools

import numpy as np
import pytest
import tiny
from typed import refused

from layerscope import metrics, profile

DEPTH = 4


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_monotone_triples_are_counted_by_sample():
    paths = np.random.default_rng(0).normal(size=(20, DEPTH + 1, 6))
    shares = metrics.monotone_triples(paths)
    for path, found in zip(paths, shares, strict=True):
        for c in range(2, DEPTH + 1):
            near = [cosine(path[layer], path[c]) for layer in range(c)]
            rises = [a <= b for a, b in itertools.combinations(near, 2)]
            assert found[c - 2] == pytest.approx(np.mean(rises))


def test_the_way_is_that_of_every_sample(tmp_path):
    model, data = tiny.Plain(depth=DEPTH, width=16), tiny.rows(60)
    how = {"metrics": "straightness", "views": 0}
    run = profile(model, data, out=tmp_path / "run", **how)
    layers = [run.pooled(layer) for layer in range(DEPTH + 1)]
    states = np.stack(layers, 1).astype(float)
    steps = np.linalg.norm(np.diff(states, axis=1), axis=-1)
    straight = np.linalg.norm(states[:, 1:] - states[:, :1], axis=-1) / steps.cumsum(1)
    means = run.metric("straightness")
    assert means.index.tolist() == [1, 2, 3, 4]
    assert means.tolist() == pytest.approx(straight.mean(0).tolist())
    np.testing.assert_allclose(metrics.straightness(states), straight[:, -1])


def test_layers_without_a_direction_are_left_out_and_short_paths_refused():
    path = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    assert metrics.monotone_triples(path).isnan().tolist() == [True, False]
    assert metrics.monotone_triples(path)[1] == 1.0
    with refused("3 layers or more"):
        metrics.monotone_triples(path[:2])
