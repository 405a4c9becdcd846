"""What is special of entropies, of ranks and of the spectra they come from."""

import math

import numpy as np
import pytest
import references
import torch
from hypothesis import given, settings, strategies as st

from layerscope.metrics import effective_rank, matrix_entropy, prompt_entropy
from layerscope.metrics.matrix_entropy import entropy_of_rows
from layerscope.metrics.prompt_entropy import entropy_of_grams, token_gram
from layerscope.metrics.spectrum import eigenvalues, symmetric_product


def prefix_mask(lengths, total):
    return np.arange(total) < np.asarray(lengths)[:, None]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 2**32), st.floats(0, 6))
def test_theorem_1_of_layer_by_layer_holds_the_other_way_round(n, d, seed, decay):
    """Squaring concentrates a spectrum: exp(S_1) is at most the effective rank; the paper prints "at least"."""
    rng = np.random.default_rng(seed)
    spread = np.arange(1.0, d + 1) ** -decay
    Z = rng.standard_normal((n, d)) * spread + rng.standard_normal(d)
    entropy, rank = math.exp(matrix_entropy(Z, rows="raw")), effective_rank(Z)
    assert 1 - 1e-9 <= entropy <= rank * (1 + 1e-9) <= min(n, d) * (1 + 2e-9)


def test_trap_16_small_eigenvalues_count_below_alpha_1(rng):
    Z = (1e-3 * rng.standard_normal((60, 24)) + rng.standard_normal(24)).astype(
        np.float32
    )
    exact = references.matrix_entropy(Z, 0.5, "raw")
    values = torch.linalg.eigvalsh(torch.from_numpy(Z @ Z.T)).clamp(min=0)
    assert abs(references.renyi(values.numpy(), 0.5) - exact) > 0.1 * exact
    assert matrix_entropy(Z, 0.5, "raw") == pytest.approx(exact, rel=1e-8)
    assert float(entropy_of_rows(torch.from_numpy(Z), 0.5)) == pytest.approx(
        exact, rel=1e-4
    )


def test_normalization_divides_by_the_logarithm_of_a_side(rng):
    Z = rng.standard_normal((20, 6))
    for name, count in (("logN", 20), ("logD", 6), ("max", 6)):
        share = matrix_entropy(Z) / math.log(count)
        assert matrix_entropy(Z, normalization=name) == pytest.approx(share)
    assert matrix_entropy(Z[:1], normalization="logN") == pytest.approx(0, abs=1e-12)
    tokens, mask = rng.standard_normal((2, 8, 5)), prefix_mask([8, 4], 8)
    plain = prompt_entropy(tokens, mask)
    for name, counts in (("logN", [8, 4]), ("logD", [5, 5]), ("max", [5, 4])):
        value = prompt_entropy(tokens, mask, normalization=name)
        np.testing.assert_allclose(value, plain / np.log(counts))


@pytest.mark.parametrize("width", [8, 40])
@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_entropies_of_token_grams_are_those_of_the_tokens_of_all_layers(
    rng, width, alpha
):
    layers = torch.from_numpy(rng.standard_normal((3, 7, 20, width)) + 0.5).float()
    mask = torch.from_numpy(rng.random((7, 20)) < 0.8)
    mask[0], mask[1] = False, torch.arange(20) == 4
    padding = torch.where(mask[..., None], layers, torch.nan)
    grams = torch.stack([token_gram(tokens, mask) for tokens in padding])
    lengths = mask.sum(-1).expand(3, 7)
    values = entropy_of_grams(grams, lengths, alpha, of_tokens=width > 20)
    np.testing.assert_allclose(values, prompt_entropy(layers, mask, alpha), atol=3e-6)
    assert values[:, 0].isnan().all() and values[:, 1].abs().max() < 1e-6
    assert token_gram(layers[0].half()).dtype == torch.float32


def test_trap_11_one_token_has_entropy_zero_and_none_is_nan(rng):
    tokens = rng.standard_normal((4, 5, 3))
    for alpha in (0.5, 1.0, 2.0):
        values = prompt_entropy(tokens, prefix_mask([0, 1, 2, 5], 5), alpha)
        assert values[0].isnan() and abs(values[1]) < 1e-12 and values[2:].min() > 0


def test_prefixes_are_the_values_of_the_cut_samples(rng):
    tokens, mask = rng.standard_normal((3, 10, 6)), prefix_mask([10, 4, 0], 10)
    values = prompt_entropy(tokens, mask, rows="centered", prefixes=[1, 4, 10, 12])
    assert values.shape == (3, 4)
    cut = [prompt_entropy(tokens[0, :k], rows="centered") for k in (1, 4, 10)]
    np.testing.assert_allclose(values[0, :3], cut)
    assert float(values[1, 1]) == pytest.approx(
        prompt_entropy(tokens[1, :4], rows="centered")
    )
    absent = [[False, False, False, True], [False, False, True, True], [True] * 4]
    assert values.isnan().tolist() == absent


def test_products_of_wide_matrices(rng):
    wide = torch.from_numpy(rng.standard_normal((3, 20, 701)))
    np.testing.assert_allclose(
        symmetric_product(wide), wide.mT @ wide, rtol=1e-10, atol=1e-10
    )


@pytest.fixture
def two_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield 2
    torch.set_num_threads(threads)


def test_threaded_eigenvalues_repeat_bit_by_bit_and_leave_threads_alone(
    rng, two_threads
):
    batches = []
    for count, size in ((3, 90), (64, 40), (1, 260)):
        rows = torch.from_numpy(rng.standard_normal((2, count, size, size))).float()
        batches.append(rows @ rows.mT)
    first, second = eigenvalues(batches), eigenvalues(batches)
    for batch, a, b in zip(batches, first, second, strict=True):
        assert torch.equal(a, b)
        exact = torch.linalg.eigvalsh(batch.double())
        np.testing.assert_allclose(a, exact, atol=1e-5 * float(exact.max()))
        assert bool((a >= 0).all())
    assert torch.get_num_threads() == two_threads
