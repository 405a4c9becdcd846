import math

import numpy as np
import pytest
import torch

from layerscope.metrics import effective_rank, matrix_entropy
from layerscope.metrics.arrays import unit_rows
from layerscope.metrics.spectrum import eigenvalues, row_factor, singular_values, symmetric_product


def test_row_factor_keeps_the_spectrum_of_all_rows(rng):
    Z = torch.from_numpy(rng.standard_normal((500, 12)) * rng.exponential(size=12) + 1)
    for size in (5, 37, 500):
        factor = row_factor(Z.split(size))
        assert factor.shape[0] <= 12 and factor.dtype == torch.float64
        assert effective_rank(factor) == pytest.approx(effective_rank(Z), rel=1e-10)
        units = row_factor(unit_rows(block) for block in Z.split(size))
        assert matrix_entropy(units, rows="raw") == pytest.approx(matrix_entropy(Z), rel=1e-10)


def test_row_factor_of_few_rows(rng):
    Z = torch.from_numpy(rng.standard_normal((5, 12)))
    assert effective_rank(row_factor([Z])) == pytest.approx(effective_rank(Z))


def test_singular_values_of_long_matrices_either_way(rng):
    Z = torch.from_numpy(rng.standard_normal((90, 7)))
    want = np.linalg.svd(Z.numpy(), compute_uv=False)
    np.testing.assert_allclose(singular_values(Z), want, rtol=1e-12)
    np.testing.assert_allclose(singular_values(Z.mT), want, rtol=1e-12)


def test_symmetric_product_of_wide_rows(rng):
    Z = torch.from_numpy(rng.standard_normal((3, 20, 701)))
    np.testing.assert_allclose(symmetric_product(Z), Z.mT @ Z, rtol=1e-10, atol=1e-10)


@pytest.fixture
def two_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield 2
    torch.set_num_threads(threads)


def test_threaded_eigenvalues_repeat_bit_by_bit_and_leave_threads_alone(rng, two_threads):
    batches = []
    for count, size in ((3, 90), (64, 40), (3, 300)):
        rows = torch.from_numpy(rng.standard_normal((2, count, size, size))).float()
        batches.append(rows @ rows.mT)
    first, second = eigenvalues(batches), eigenvalues(batches)
    for batch, a, b in zip(batches, first, second, strict=True):
        assert torch.equal(a, b)
        want = torch.linalg.eigvalsh(batch.double())
        np.testing.assert_allclose(a, want, atol=1e-5 * float(want.max()))
        assert bool((a >= 0).all())
    assert torch.get_num_threads() == two_threads


def test_an_entropy_has_the_smallest_limits(rng):
    assert matrix_entropy(np.eye(6)) == pytest.approx(math.log(6))
    assert matrix_entropy(np.ones((6, 3))) == pytest.approx(0, abs=1e-12)
