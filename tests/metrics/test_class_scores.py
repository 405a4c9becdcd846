"""Scores of predictions at each layer, of exits and of generated text, against plain numpy."""

import numpy as np
import pytest
import references
import torch

from layerscope.metrics import (
    effective_depth,
    exit_parameters,
    exit_speedup,
    label_probability,
    layer_accuracy,
    perplexity,
    saturation_layer,
    straightness,
)


def test_saturation_wants_the_prediction_never_to_change_again(rng):
    tops = rng.integers(0, 3, (4, 50, 8))
    for first in (0, 1):
        values = saturation_layer(tops, first)
        exact = [[references.saturation(row, first) for row in block] for block in tops]
        np.testing.assert_array_equal(values, exact)
        assert values.dtype == torch.int64
    assert int(saturation_layer(np.array([5, 2, 5, 5]))) == 3


def test_layer_accuracy_is_the_share_of_right_predictions(rng):
    tops, labels = rng.integers(0, 3, (5, 6, 4)), rng.integers(0, 3, (5, 6))
    exact = (tops == labels[..., None]).mean((0, 1))
    np.testing.assert_allclose(layer_accuracy(tops, labels), exact)


def test_perplexity_is_the_inverse_geometric_mean(rng):
    probabilities = rng.uniform(0.1, 1, (3, 20))
    exact = probabilities.prod(1) ** (-1 / 20)
    np.testing.assert_allclose(perplexity(-np.log(probabilities)), exact, rtol=1e-12)


def test_label_probability_is_the_softmax_of_each_layer(rng):
    logits, labels = rng.normal(size=(5, 3, 4)), rng.integers(0, 4, 5)
    softmax = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    exact = [softmax[i, :, label] for i, label in enumerate(labels)]
    np.testing.assert_allclose(label_probability(logits, labels), exact)


def test_effective_depth_counts_from_one_and_takes_ties():
    assert effective_depth([0.5, 0.9, 0.8], 0.1) == 2
    assert effective_depth([0.5, 0.6, 0.7], 0.1) == 3  # none is enough
    assert effective_depth([0.5, 0.9, 0.8], 0.0, "last") == 2
    assert effective_depth([[0.9, 0.9], [0.1, 0.9]], 0.1).tolist() == [1, 2]


def test_arrays_that_must_not_be_written_are_read_in_silence(recwarn):
    accuracies = np.array([0.2, 0.8, 0.9])
    accuracies.flags.writeable = False
    assert int(effective_depth(accuracies, 0.1, "last")) == 2
    assert not recwarn.list


def test_exits_save_layers_and_parameters():
    assert exit_speedup([0, 0, 7]) == 1 and exit_speedup([5, 0, 0]) == 3
    one, many, saved = exit_parameters(384, 1000, 12, 22_050_000)  # DeiT-S, table 1
    assert (one, many) == (22_050_000, 22_050_000 + 11 * 384_000)
    assert 0.1607 < saved < 0.1608


def test_states_on_a_line_are_straight(rng):
    start, end = rng.normal(size=(2, 7, 1, 6))
    shares = np.array([0, 0.1, 0.5, 1.0])[None, :, None]
    np.testing.assert_allclose(straightness(start + shares * (end - start)), 1)
    detour = np.array([[0.0, 0], [3, 4], [6, 0]])
    assert float(straightness(detour)) == pytest.approx(0.6)
