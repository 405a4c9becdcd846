import math

import numpy as np
import pytest
import references
import torch
from hypothesis import given, settings, strategies as st

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import effective_rank, matrix_entropy
from layerscope.metrics.matrix_entropy import entropy_of_rows


def orthogonal(width, rng):
    return np.linalg.qr(rng.standard_normal((width, width)))[0]


@pytest.mark.parametrize("shape", [(30, 8), (8, 30), (12, 12), (700, 5)])
@pytest.mark.parametrize("rows", ["unit", "raw", "centered"])
@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5, 2.0, 3.0])
def test_agrees_with_the_reference(rng, shape, rows, alpha):
    Z = rng.standard_normal(shape) * rng.uniform(0.1, 5, shape[1]) + 1
    # A centred square matrix has one eigenvalue of rounding, whose root is not small.
    tolerance = 1e-6 if alpha < 1 and rows == "centered" else 1e-9
    assert matrix_entropy(Z, alpha, rows) == pytest.approx(
        references.matrix_entropy(Z, alpha, rows), rel=tolerance
    )


def test_both_sides_of_the_gram_agree(rng):
    Z = rng.standard_normal((50, 9))
    for alpha in (0.5, 1.0, 2.0):
        assert matrix_entropy(Z, alpha, "raw") == pytest.approx(
            matrix_entropy(Z.T, alpha, "raw"), rel=1e-10
        )


def test_squared_spectrum_is_the_more_concentrated(rng):
    for shape in ((20, 50), (50, 20)):
        Z = rng.standard_normal(shape) * rng.exponential(size=shape[1])
        rank = effective_rank(Z)
        assert 1 <= math.exp(matrix_entropy(Z, rows="raw")) <= rank <= min(shape)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(1e-3, 1e3))
def test_does_not_see_rotation_scale_or_order(seed, scale):
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((10, 6)) + 0.3
    moved = scale * rng.permutation(Z) @ orthogonal(6, rng)
    for rows in ("unit", "raw", "centered"):
        assert matrix_entropy(moved, rows=rows) == pytest.approx(
            matrix_entropy(Z, rows=rows), abs=1e-9
        )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_does_not_increase_with_alpha(seed):
    Z = np.random.default_rng(seed).standard_normal((9, 7))
    values = [matrix_entropy(Z, alpha) for alpha in (0.2, 0.5, 1.0, 1.5, 2.0, 4.0, math.inf)]
    assert all(high >= low - 1e-12 for high, low in zip(values, values[1:], strict=False))


def test_s2_needs_no_eigenvalues(rng, monkeypatch):
    Z = rng.standard_normal((40, 10))
    want = references.matrix_entropy(Z, 2.0, "raw")

    def forbidden(*_):
        raise AssertionError("S_2 solved an eigenproblem")

    monkeypatch.setattr(torch.linalg, "eigvalsh", forbidden)
    monkeypatch.setattr(torch.linalg, "svdvals", forbidden)
    assert matrix_entropy(Z, 2.0, "raw") == pytest.approx(want, rel=1e-12)


def test_trap_04_one_massive_row_does_not_rule_unit_rows(rng):
    Z = rng.standard_normal((40, 16))
    sink = Z.copy()
    sink[0] *= 500
    assert matrix_entropy(sink, rows="raw") < 0.1
    assert matrix_entropy(sink) == pytest.approx(matrix_entropy(Z), abs=1e-12)


def test_trap_06_negative_gram_entries_are_kept(rng):
    Z = rng.standard_normal((12, 5))
    clamped = references.renyi(np.linalg.eigvalsh((Z @ Z.T).clip(0)).clip(0), 1)
    value = matrix_entropy(Z, rows="raw")
    assert value == pytest.approx(references.matrix_entropy(Z, 1, "raw"), rel=1e-10)
    assert abs(value - clamped) > 0.1


@pytest.mark.parametrize("scale", [1e-3, 1.0, 70.0])
def test_trap_07_s2_divides_by_the_squared_trace(rng, scale):
    Z = scale * rng.standard_normal((12, 5))
    assert matrix_entropy(Z, 2.0, "raw") == pytest.approx(
        references.matrix_entropy(Z, 2, "raw"), rel=1e-10
    )


def test_trap_12_half_precision_does_not_overflow():
    Z = np.full((4, 8), 15_000, dtype=np.float16) * np.eye(4, 8, dtype=np.float16)
    assert matrix_entropy(Z, rows="raw") == pytest.approx(math.log(4))
    assert matrix_entropy(torch.as_tensor(Z).bfloat16(), rows="raw") == pytest.approx(math.log(4))


def test_trap_16_small_eigenvalues_count_below_alpha_1(rng):
    Z = (1e-3 * rng.standard_normal((60, 24)) + rng.standard_normal(24)).astype(np.float32)
    want = references.matrix_entropy(Z, 0.5, "raw")
    from_gram = references.renyi(
        torch.linalg.eigvalsh(torch.from_numpy(Z @ Z.T)).clamp(min=0).numpy(), 0.5
    )
    assert abs(from_gram - want) > 0.1 * want
    assert matrix_entropy(Z, 0.5, "raw") == pytest.approx(want, rel=1e-8)
    assert float(entropy_of_rows(torch.from_numpy(Z), 0.5)) == pytest.approx(want, rel=1e-4)


def test_zero_rows_stay_zero(rng):
    Z = rng.standard_normal((10, 6))
    assert matrix_entropy(np.vstack([Z, np.zeros((3, 6))])) == pytest.approx(
        matrix_entropy(Z), rel=1e-12
    )
    for alpha in (0.5, 1.0, 1.5, 2.0, math.inf):
        assert matrix_entropy(np.zeros((4, 3)), alpha) == 0
        assert matrix_entropy(np.full((7, 3), 0.1), alpha, "centered") == 0


def test_normalization(rng):
    Z = rng.standard_normal((20, 6))
    plain = matrix_entropy(Z)
    for name, count in (("logN", 20), ("logD", 6), ("max", 6)):
        assert matrix_entropy(Z, normalization=name) == pytest.approx(plain / math.log(count))
    assert matrix_entropy(Z[:1], normalization="logN") == pytest.approx(0, abs=1e-12)


def test_leading_dimensions_and_types(rng):
    Z = rng.standard_normal((2, 3, 9, 5))
    values = matrix_entropy(Z)
    assert (
        isinstance(values, torch.Tensor)
        and values.dtype == torch.float64
        and values.shape == (2, 3)
    )
    assert isinstance(matrix_entropy(Z[1, 2]), float)
    assert float(values[1, 2]) == pytest.approx(
        matrix_entropy(torch.from_numpy(Z[1, 2])), rel=1e-12
    )


def test_errors_name_the_value(rng):
    Z = rng.standard_normal((5, 4))
    with pytest.raises(LayerscopeError, match="alpha=0 "):
        matrix_entropy(Z, alpha=0)
    with pytest.raises(LayerscopeError, match="rows='units'.*did you mean unit"):
        matrix_entropy(Z, rows="units")
    with pytest.raises(LayerscopeError, match="normalization='N'"):
        matrix_entropy(Z, normalization="N")
    with pytest.raises(LayerscopeError, match=r"Z has shape \(4,\)"):
        matrix_entropy(Z[0])
    Z[1, 2] = np.inf
    with pytest.raises(LayerscopeError, match="Z holds 1 NaN or infinite"):
        matrix_entropy(Z)
