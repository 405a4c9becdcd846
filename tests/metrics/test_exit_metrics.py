"""Metrics of exits, collapse, progression and generated text, against oracles and independent computations."""

import numpy as np
import pytest
import torch

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import (
    coherence,
    diversity,
    effective_depth,
    exit_parameters,
    exit_speedup,
    label_probability,
    neural_collapse,
    straightness,
)

KINDS = {"absolute_error": None, "within_eps_of_last": "last", "within_eps_of_best": "best"}


def test_effective_depth_of_the_oracle(oracle):
    accuracies = oracle["layer_accuracy_12"]
    found = [key for key in oracle if key.startswith("effective_depth.")]
    assert len(found) == 12
    for key in found:
        _, kind, epsilon, _ = key.split(".")
        value = effective_depth(accuracies, float(epsilon[3:].replace("_", ".")), KINDS[kind])
        assert value == int(oracle[key]), key


def test_effective_depth_counts_from_one_and_takes_ties():
    assert effective_depth([0.5, 0.9, 0.8], 0.1) == 2
    assert effective_depth([0.5, 0.6, 0.7], 0.1) == 3  # none is enough
    assert effective_depth([0.5, 0.9, 0.8], 0.0, "last") == 2
    assert effective_depth([[0.9, 0.9], [0.1, 0.9]], 0.1).tolist() == [1, 2]
    with pytest.raises(LayerscopeError, match="epsilon=2"):
        effective_depth([0.5], 2)


def test_neural_collapse_of_the_oracle(oracle):
    found = [key for key in oracle if key.startswith("nc1.")]
    assert len(found) == 4
    for key in found:
        _, mean, name = key.split(".")
        labels = oracle[name.replace("features", "labels").rsplit("x", 1)[0]]
        value = neural_collapse(
            oracle[name], labels, global_mean=mean.removeprefix("global_mean_of_")
        )
        np.testing.assert_allclose(value.nc1, oracle[key], rtol=1e-9)


def test_neural_collapse_of_a_simplex_is_zero_whatever_its_size(rng):
    corners = np.eye(4) - 1 / 4
    labels = np.repeat(np.arange(4), 5)
    found = neural_collapse(7 * corners[labels], labels, 3 * corners)
    for value in (found.nc1, found.nc2_norms, found.nc2_angles, found.nc3):
        assert float(value) == pytest.approx(0, abs=1e-12)
    states = rng.normal(size=(3, 20, 6))
    layers = neural_collapse(states, labels, rng.normal(size=(4, 6)))
    for layer in range(3):
        means = np.stack([states[layer][labels == k].mean(0) for k in range(4)])
        centred = means - states[layer].mean(0)
        between = centred.T @ centred / 4
        within = sum(np.outer(v, v) for v in states[layer] - means[labels]) / 20
        want = np.trace(within @ np.linalg.pinv(between, rcond=1e-10)) / 4
        np.testing.assert_allclose(layers.nc1[layer], want, rtol=1e-9)
        norms = np.linalg.norm(centred, axis=1)
        np.testing.assert_allclose(layers.nc2_norms[layer], norms.std() / norms.mean(), rtol=1e-12)
        unit = centred / norms[:, None]
        angles = [abs(unit[i] @ unit[j] + 1 / 3) for i in range(4) for j in range(i)]
        np.testing.assert_allclose(layers.nc2_angles[layer], np.mean(angles), rtol=1e-12)
    with pytest.raises(LayerscopeError, match="two classes"):
        neural_collapse(states, np.zeros(20))


def test_diversity_of_the_oracle(oracle):
    for key in (k for k in oracle if k.startswith("diversity.text")):
        assert diversity(oracle[key.removeprefix("diversity.")].tolist()) == pytest.approx(
            float(oracle[key])
        )
    with pytest.raises(LayerscopeError, match="3 tokens have no 4-gram"):
        diversity([1, 2, 3])


def test_exits_save_layers_and_parameters(oracle):
    assert exit_speedup(oracle["exit_counts_12"]) == pytest.approx(
        float(oracle["exit_speedup.exit_counts_12"])
    )
    assert exit_speedup([0, 0, 7]) == 1 and exit_speedup([5, 0, 0]) == 3
    with pytest.raises(LayerscopeError, match="how many samples leave"):
        exit_speedup([0, 0])
    one, many, saved = exit_parameters(384, 1000, 12, 22_050_000)  # DeiT-S, table 1
    assert (one, many) == (22_050_000, 22_050_000 + 11 * 384_000)
    assert 0.1607 < saved < 0.1608


def test_label_probability_is_the_softmax_of_each_layer(rng):
    logits, labels = rng.normal(size=(5, 3, 4)), rng.integers(0, 4, 5)
    want = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    found = label_probability(logits, labels)
    np.testing.assert_allclose(
        found, [[want[i, layer, labels[i]] for layer in range(3)] for i in range(5)]
    )
    with pytest.raises(LayerscopeError, match="4 classes"):
        label_probability(logits, labels + 4)


def test_states_on_a_line_are_straight(rng):
    start, end = rng.normal(size=(2, 7, 1, 6))
    shares = np.array([0, 0.1, 0.5, 1.0])[None, :, None]
    line = start + shares * (end - start)
    np.testing.assert_allclose(straightness(line), 1)
    detour = np.array([[0.0, 0], [3, 4], [6, 0]])
    assert float(straightness(detour)) == pytest.approx(0.6)


def test_coherence_pairs_rows(rng):
    one, two = rng.normal(size=(2, 4, 6))
    want = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(one, two, strict=True)]
    np.testing.assert_allclose(coherence(one, two), want)
    assert coherence(torch.ones(2, 3), torch.ones(2, 3)).tolist() == pytest.approx([1, 1])


def test_arrays_that_must_not_be_written_are_read_in_silence(recwarn):
    accuracies = np.array([0.2, 0.8, 0.9])
    accuracies.flags.writeable = False
    assert int(effective_depth(accuracies, 0.1, "last")) == 2
    assert not recwarn.list
