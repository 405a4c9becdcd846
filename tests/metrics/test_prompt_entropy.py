import math

import numpy as np
import pytest
import references
import torch
from hypothesis import given, settings, strategies as st

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import prompt_entropy
from layerscope.metrics.prompt_entropy import entropy_of_grams, token_gram


def prefix_mask(lengths, total):
    return np.arange(total) < np.asarray(lengths)[:, None]


@pytest.mark.parametrize("rows", ["unit", "raw", "centered"])
@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_agrees_with_the_reference_for_any_mask(rng, rows, alpha):
    tokens = rng.standard_normal((6, 14, 9)) + 0.4
    mask = rng.random((6, 14)) < 0.7
    values = prompt_entropy(tokens, mask, alpha, rows)
    want = [references.matrix_entropy(z[m], alpha, rows) for z, m in zip(tokens, mask, strict=True)]
    np.testing.assert_allclose(values, want, rtol=1e-6 if alpha < 1 else 1e-9)


@pytest.mark.parametrize("width", [8, 40])
@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_the_two_halves_give_the_whole_for_all_layers_at_once(rng, width, alpha):
    layers = torch.from_numpy(rng.standard_normal((3, 7, 20, width)) + 0.5).float()
    mask = torch.from_numpy(rng.random((7, 20)) < 0.8)
    mask[0], mask[1] = False, torch.arange(20) == 4
    grams = torch.stack([token_gram(tokens, mask) for tokens in layers])
    values = entropy_of_grams(grams, mask.sum(-1), alpha, of_tokens=width > 20)
    want = prompt_entropy(layers, mask, alpha)
    np.testing.assert_allclose(values, want, atol=3e-6)
    assert values[:, 0].isnan().all() and values[:, 1].abs().max() < 1e-6


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 60), st.sampled_from(["left", "right"]))
def test_trap_10_padding_does_not_enter(seed, padding, side):
    tokens = torch.from_numpy(np.random.default_rng(seed).standard_normal((2, 12, 16))).float() + 1
    filler = torch.full((2, padding, 16), torch.nan)
    ones, zeros = torch.ones(2, 12), torch.zeros(2, padding)
    order = 1 if side == "right" else -1
    padded = torch.cat([tokens, filler][::order], 1)
    mask = torch.cat([ones, zeros][::order], 1)
    plain = prompt_entropy(tokens)
    np.testing.assert_allclose(prompt_entropy(padded, mask), plain, atol=1e-6)
    values = entropy_of_grams(token_gram(padded, mask), mask.sum(-1), of_tokens=12 + padding <= 16)
    np.testing.assert_allclose(values, plain, atol=2e-6)


def test_trap_11_one_token_is_zero_and_none_is_nan(rng):
    tokens = rng.standard_normal((4, 5, 3))
    for alpha in (0.5, 1.0, 2.0):
        values = prompt_entropy(tokens, prefix_mask([0, 1, 2, 5], 5), alpha)
        assert values[0].isnan() and abs(values[1]) < 1e-12 and values[2:].min() > 0
    assert prompt_entropy(tokens[0], np.zeros(5)) != prompt_entropy(tokens[0], np.zeros(5))


def test_trap_12_half_precision_is_upcast():
    tokens = (15_000 * torch.eye(4, 8)).to(torch.float16)
    value = prompt_entropy(tokens, rows="raw")
    assert value == pytest.approx(math.log(4), rel=1e-6)
    assert token_gram(tokens).dtype == torch.float32


def test_trap_13_batch_mates_do_not_change_a_sample(rng):
    tokens = torch.from_numpy(rng.standard_normal((9, 30, 12))).float()
    mask = torch.from_numpy(prefix_mask(rng.integers(2, 31, 9), 30))
    together = prompt_entropy(tokens, mask)
    for i in range(9):
        assert prompt_entropy(tokens[i], mask[i]) == pytest.approx(float(together[i]), abs=1e-6)


def test_trap_16_orders_below_1_refuse_grams(rng):
    with pytest.raises(LayerscopeError, match=r"alpha=0\.5 needs singular values"):
        entropy_of_grams(torch.eye(3)[None], torch.tensor([3]), alpha=0.5)


def test_prefixes_are_the_values_of_the_cut_samples(rng):
    tokens = rng.standard_normal((3, 10, 6))
    mask = prefix_mask([10, 4, 0], 10)
    values = prompt_entropy(tokens, mask, rows="centered", prefixes=[1, 4, 10, 12])
    assert values.shape == (3, 4)
    np.testing.assert_allclose(
        values[0, :3], [prompt_entropy(tokens[0, :k], rows="centered") for k in (1, 4, 10)]
    )
    assert float(values[1, 1]) == pytest.approx(prompt_entropy(tokens[1, :4], rows="centered"))
    np.testing.assert_array_equal(
        values.isnan(), [[False, False, False, True], [False, False, True, True], [True] * 4]
    )
    with pytest.raises(LayerscopeError, match="prefix 0"):
        prompt_entropy(tokens, prefixes=[0])


def test_a_broken_sample_is_nan_and_spares_the_others(rng):
    tokens = torch.from_numpy(rng.standard_normal((2, 3, 6, 4))).float()
    tokens[1, 1, 2, 3] = torch.inf
    for values in (
        prompt_entropy(tokens),
        entropy_of_grams(token_gram(tokens.mT), torch.tensor([4] * 3)),
    ):
        np.testing.assert_array_equal(values.isnan(), [[False] * 3, [False, True, False]])


def test_normalization_counts_real_tokens(rng):
    tokens = rng.standard_normal((2, 8, 5))
    mask = prefix_mask([8, 4], 8)
    plain = prompt_entropy(tokens, mask)
    for name, counts in (("logN", [8, 4]), ("logD", [5, 5]), ("max", [5, 4])):
        np.testing.assert_allclose(
            prompt_entropy(tokens, mask, normalization=name), plain / np.log(counts)
        )


def test_a_mask_that_does_not_fit(rng):
    with pytest.raises(LayerscopeError, match=r"mask has shape \(2, 4\) and tokens \(2, 5, 3\)"):
        prompt_entropy(rng.standard_normal((2, 5, 3)), np.ones((2, 4)))
