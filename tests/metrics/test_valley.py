"""What is special of valleys, and what goes with them and with causal depth, against float64 numpy."""

import numpy as np
import pytest
import references
import torch

from layerscope.metrics import (
    branch_contribution,
    causal_depth,
    contribution_change,
    first_token_attention,
    prediction_change,
    valley,
)
from layerscope.metrics.factors import Tokens
from layerscope.metrics.valley import valley_without_sinks

T, D = 9, 6


def sample(seed, tokens=T):
    """Return tokens of unequal lengths, the first of them massive."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(tokens, D)) * rng.uniform(0.5, 2.0, size=(tokens, 1))
    states[0] *= 40.0
    return states


@pytest.mark.parametrize("tokens", [T, D, 4])
def test_without_sinks_is_that_of_the_other_tokens(tokens):
    """More than features, as many, and fewer."""
    states = np.stack([sample(seed, tokens) for seed in range(3)])
    states[1, 0] /= 40.0  # no sink
    found = valley_without_sinks(Tokens(torch.tensor(states)))
    for i, one in enumerate(states):
        others = one if i == 1 else one[1:]
        exact = references.valley(others)
        for part in ("entropy", "first_singular"):
            value = float(getattr(found, part)[i])
            assert value == pytest.approx(exact[part], rel=1e-9)


def test_a_sample_of_one_token_has_no_value():
    assert all(bool(part.isnan()) for part in vars(valley(sample(0, 1))).values())


def test_half_precision_is_squared_in_float64():
    states = torch.tensor(sample(0) * 300).half()
    exact = references.valley(states.double())["entropy"]
    assert float(valley(states).entropy) == pytest.approx(exact, rel=1e-6)


def attention(heads, tokens, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(heads, tokens, tokens))
    scores[:, np.triu(np.ones((tokens, tokens)), 1) > 0] = -np.inf
    weights = np.exp(scores)
    return weights / weights.sum(-1, keepdims=True)


def test_attention_to_the_first_token_is_the_mean_over_the_others():
    weights = attention(3, T)
    found = first_token_attention(weights).numpy()
    np.testing.assert_allclose(found, weights[:, 1:, 0].mean(1), rtol=1e-12)


def test_the_first_token_is_the_first_real_one():
    weights, mask = np.zeros((2, T + 2, T + 2)), np.zeros(T + 2)
    weights[:, 2:, 2:] = attention(2, T)
    mask[2:] = 1
    found = first_token_attention(weights, mask).numpy()
    np.testing.assert_allclose(found, attention(2, T)[:, 1:, 0].mean(1), rtol=1e-12)
    assert bool(first_token_attention(weights[:, :1, :1]).isnan().all())


def test_change_of_a_contribution_is_relative_to_each_token():
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(2, 3, T, D))
    before[:, 0] = 0.0  # the block adds nothing there
    mask = rng.random((3, T)) < 0.7
    mask[:, :2] = True
    moved = np.linalg.norm(before - after, axis=-1)
    size = np.linalg.norm(before, axis=-1)
    found = contribution_change(before, after, mask).numpy()
    for i in range(3):
        kept = mask[i] & (size[i] > 0)
        expected = (moved[i][kept] / size[i][kept]).mean()
        assert found[i] == pytest.approx(expected, rel=1e-12)


def test_change_of_a_prediction_is_between_probabilities():
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(2, 5, 7))
    p, q = (
        np.exp(each) / np.exp(each).sum(-1, keepdims=True) for each in (before, after)
    )
    found = prediction_change(before, after).numpy()
    np.testing.assert_allclose(found, np.linalg.norm(p - q, axis=-1), rtol=1e-12)


def test_branch_against_the_stream():
    rng = np.random.default_rng(0)
    added, stream = rng.normal(size=(2, T, D))
    found = branch_contribution(added, stream)
    norms = np.linalg.norm(added, axis=1), np.linalg.norm(stream, axis=1)
    cosine = ((added * stream).sum(1) / norms[0] / norms[1]).mean()
    assert float(found.cosine) == pytest.approx(cosine, rel=1e-12)
    assert float(found.norm) == pytest.approx((norms[0] / norms[1]).mean(), rel=1e-12)


def test_causal_depth_counts_blocks_that_matter_alike():
    changes = np.array(
        [[0.3, 0.3, 0.3, 0.3], [0.0, 2.0, 0.0, 0.0], [1.0, 0.5, 0.0, 0.0]]
    )
    found = causal_depth(changes).numpy()
    np.testing.assert_allclose(found, [4.0, 1.0, 1.5**2 / 1.25], rtol=1e-12)
    assert bool(causal_depth(np.zeros(3)).isnan())
