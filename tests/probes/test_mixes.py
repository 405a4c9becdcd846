"""Mixes of layers: planted labels are found, noise gains nothing, and no held-out item takes part in learning."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.preprocessing import normalize
from typed import refused

from layerscope.probes import linear_probe
from layerscope.probes.linear import linearly_judged
from layerscope.probes.mixes import _Data, _left_out, fixed_mixes, linear_mixes


def layers_of(n, seed=0, depth=4, width=16):
    """Layer 1 knows one bit of the class, layer 3 the other, at ten times the size; the others know nothing."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, (2, n))
    states = {layer: rng.normal(size=(n, width)) for layer in range(depth + 1)}
    states[1] += 2 * np.outer(2 * bits[0] - 1, rng.normal(size=width))
    states[3] += 2 * np.outer(2 * bits[1] - 1, rng.normal(size=width))
    states[3] *= 10
    return {layer: rows.astype(np.float32) for layer, rows in states.items()}, 2 * bits[
        0
    ] + bits[1]


def reader(states, *about):
    return lambda weights, finished: (
        sum(weight * states[layer] for layer, weight in weights.items()),
        *about,
    )


@pytest.fixture(scope="module")
def planted():
    """States and labels, the probe of each layer, and the mixes."""
    states, labels = layers_of(300)
    alone = {layer: linear_probe(rows, labels) for layer, rows in states.items()}
    found = dict(linear_mixes(reader(states, labels), list(states), 4, alone))
    return states, labels, alone, found


def test_two_layers_that_know_half_a_label_each_are_found(planted):
    _, _, alone, found = planted
    assert list(found) == ["one layer", "last 2", "last 4", "first+last", "scalar mix"]
    assert max(score.mean for score in alone.values()) < 0.6
    mix, rival = found["scalar mix"], found["one layer"]
    assert sorted(
        mix.weights, key=lambda layer: mix.weights[layer] * (10 if layer == 3 else 1)
    )[-2:] in (
        [1, 3],
        [3, 1],
    )
    assert sum(mix.weights.values()) == pytest.approx(1)
    assert mix.score.mean > 0.97 and mix.gain > 10 * mix.gain_error > 0
    assert mix.gain == pytest.approx(mix.score.mean - rival.score.mean)
    apart = mix.score.right.astype(float) - rival.score.right
    assert mix.gain_error == pytest.approx(apart.std(ddof=1) / np.sqrt(len(apart)))


def test_noise_gains_nothing():
    scores = []
    for seed in range(2):
        states, _ = layers_of(150, seed, depth=3, width=6)
        labels = np.random.default_rng(seed + 9).integers(0, 2, 150)
        found = dict(
            linear_mixes(reader(states, labels), list(states), 3, {}, seed=seed)
        )
        scores += [
            mix.gain / mix.gain_error for mix in found.values() if mix.gain_error > 0
        ]
    assert np.mean(scores) < 2
    assert max(scores) < 3.5


def test_nothing_that_is_learned_sees_the_fold_that_judges_it():
    states, labels = layers_of(200)
    data = _Data(reader(states, labels), list(states), 0)
    out = data.fold == 2
    rng = np.random.default_rng(5)
    other = {
        layer: np.where(out[:, None], rng.normal(size=rows.shape) * 50, rows)
        for layer, rows in states.items()
    }
    changed = _Data(reader(other, labels), list(states), 0)
    assert data.learned(~out) == changed.learned(~out)
    assert data.learned(data.fold >= 0) != changed.learned(data.fold >= 0)


def test_the_left_out_predictions_are_those_of_refitting():
    rng = np.random.default_rng(0)
    states, labels = rng.normal(size=(40, 6)), rng.integers(0, 3, 40)
    targets, strength = np.eye(3)[labels], 0.4
    rows = normalize(states)
    rows = (rows - rows.mean(0)) / rows.std(0, ddof=1)
    wanted = []
    for i in range(40):
        rest = np.arange(40) != i
        wanted.append(
            Ridge(alpha=strength * 6)
            .fit(rows[rest], targets[rest])
            .predict(rows[i : i + 1])[0]
        )
    found = _left_out(
        torch.tensor(states).float(), torch.tensor(targets).float(), strength
    )
    np.testing.assert_allclose(found.numpy(), np.stack(wanted), rtol=1e-3, atol=1e-4)


def test_a_fixed_mix_scores_as_its_states_do_and_one_layer_as_the_folds_choose(planted):
    states, labels, alone, found = planted
    assert found["last 2"].score == linear_probe((states[3] + states[4]) / 2, labels)
    data = _Data(reader(states, labels), list(states), 0)
    wanted = np.zeros(300, dtype=bool)
    for number in range(5):
        best = min(range(1, 5), key=lambda layer: alone[layer].losses[number])
        wanted[data.fold == number] = alone[best].right[data.fold == number]
    np.testing.assert_array_equal(found["one layer"].score.right, wanted)
    given = np.eye(300)[:, :50], data.classes, data.fold, 0
    right, chosen, losses = linearly_judged(*given)
    one = linearly_judged(*given, only=(3,))
    np.testing.assert_array_equal(one[0], right & (data.fold == 3))
    assert (one[1], one[2]) == (chosen[3:4], losses[3:4])


def test_fixed_mixes_are_those_whose_layers_are_there():
    assert fixed_mixes(range(13), 12)["last 4"] == {
        9: 0.25,
        10: 0.25,
        11: 0.25,
        12: 0.25,
    }
    assert list(fixed_mixes(range(13), 12)) == ["last 2", "last 4", "first+last"]
    assert list(fixed_mixes(range(3), 2)) == ["last 2"], (
        "the first and the last are the last two"
    )
    assert list(fixed_mixes([0, 1, 12], 12)) == ["first+last"]
    assert fixed_mixes([0, 5], 12) == {}


def test_layers_of_unlike_width_are_refused_in_a_line():
    states, labels = layers_of(60)
    states[2] = states[2][:, :7]
    with refused("layer 2 has the width 7 and layer 0 16: mix layers of one width"):
        list(linear_mixes(reader(states, labels), list(states), 4, {}))
