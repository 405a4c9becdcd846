import numpy as np
import pytest

from layerscope.metrics import dataset_entropy, matrix_entropy


def test_is_matrix_entropy_of_the_pooled_rows(rng):
    pooled = rng.standard_normal((3, 20, 6))
    for rows in ("unit", "raw", "centered"):
        np.testing.assert_array_equal(
            dataset_entropy(pooled, 2.0, rows), matrix_entropy(pooled, 2.0, rows)
        )


def test_trap_05_tokens_are_not_centred_before_pooling(rng):
    """Centred in its own sentence, the mean of the tokens would be zero for every sample."""
    tokens = rng.standard_normal((20, 8, 6)) + 3 * rng.standard_normal((20, 1, 6))
    centred = tokens - tokens.mean(1, keepdims=True)
    assert np.abs(centred.mean(1)).max() < 1e-12
    assert dataset_entropy(tokens.mean(1)) == pytest.approx(matrix_entropy(tokens.mean(1)))
    assert dataset_entropy(tokens.mean(1)) > 1
