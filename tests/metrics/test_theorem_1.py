"""Theorem 1 of Layer by Layer: which way round its inequality holds, on inputs of every kind.

The entropy of raw rows is that of squared singular values, the effective rank that of the singular
values themselves. Squaring concentrates a spectrum, so exp(S_1) is at most the effective rank; the
paper prints "at least"."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from layerscope.metrics import effective_rank, matrix_entropy


def holds(Z: np.ndarray) -> bool:
    entropy, rank = math.exp(matrix_entropy(Z, rows="raw")), effective_rank(Z)
    return 1 - 1e-9 <= entropy <= rank * (1 + 1e-9) <= min(Z.shape) * (1 + 2e-9)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 2**32), st.floats(0, 6))
def test_exp_of_the_entropy_is_at_most_the_effective_rank(n, d, seed, decay):
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, d)) * np.arange(1.0, d + 1) ** -decay + rng.standard_normal(d)
    assert holds(Z)


def test_on_hard_inputs(rng):
    Z = rng.standard_normal((60, 24))
    offset, sink, thin = Z.copy(), Z.copy(), 1e-3 * Z + rng.standard_normal(24)
    offset[:, 7] += 3000
    sink[0] *= 500
    for hard in (offset, sink, thin, Z[:, :1], Z[:1], np.zeros((4, 3)), 1e-150 * Z, 1e150 * Z):
        assert holds(hard)


def test_on_the_reference_inputs(oracle):
    inputs = [
        x for name, x in oracle.items() if "." not in name and x.ndim == 2 and x.dtype == np.float32
    ]
    assert len(inputs) >= 12
    for Z in inputs:
        assert holds(Z)


def test_the_printed_direction_has_counter_examples(rng):
    """Singular values 2 and 1: exp(S_1) of (4/5, 1/5) against the effective rank of (2/3, 1/3)."""
    Z = np.diag([2.0, 1.0])
    entropy, rank = math.exp(matrix_entropy(Z, rows="raw")), effective_rank(Z)
    assert entropy == pytest.approx(5 / 4**0.8) and rank == pytest.approx(3 / 2 ** (2 / 3))
    assert entropy < rank - 0.2
    random = rng.standard_normal((50, 20))
    assert math.exp(matrix_entropy(random, rows="raw")) < effective_rank(random) - 0.5


def test_equality_is_that_of_a_flat_spectrum(rng):
    flat = np.linalg.qr(rng.standard_normal((9, 5)))[0]
    assert math.exp(matrix_entropy(flat, rows="raw")) == pytest.approx(5) and effective_rank(
        flat
    ) == pytest.approx(5)
