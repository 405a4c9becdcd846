import math

import numpy as np
import pytest
import references
import torch
from hypothesis import given, settings, strategies as st

from layerscope.metrics import curvature, zero_differences


def test_agrees_with_the_reference_for_any_mask(rng):
    tokens = rng.standard_normal((2, 6, 14, 9)).cumsum(-2)
    mask = rng.random((6, 14)) < 0.7
    values = curvature(tokens, mask)
    for layer in range(2):
        want = [references.curvature(z[m]) for z, m in zip(tokens[layer], mask, strict=True)]
        np.testing.assert_allclose(values[layer], want, rtol=1e-9)
    assert isinstance(curvature(tokens[0, 0]), float)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.floats(0.01, 100))
def test_does_not_see_rotation_shift_scale_or_padding(seed, scale):
    rng = np.random.default_rng(seed)
    tokens = rng.standard_normal((8, 5))
    rotation = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    moved = scale * tokens @ rotation + rng.standard_normal(5)
    padded = np.vstack([np.full((3, 5), np.nan), moved, np.full((2, 5), np.nan)])
    mask = np.array([0] * 3 + [1] * 8 + [0] * 2)
    assert curvature(padded, mask) == pytest.approx(curvature(tokens), abs=1e-8)


def test_directions_are_known():
    straight = np.arange(5.0)[:, None] * [1.0, 2.0]
    assert curvature(straight) == pytest.approx(0, abs=1e-7)
    assert curvature(np.array([[0.0], [1], [0], [1]])) == pytest.approx(math.pi)
    assert curvature(np.array([[0.0, 0], [1, 0], [1, 1]])) == pytest.approx(math.pi / 2)


def test_trap_11_fewer_than_three_tokens_are_nan(rng):
    tokens = rng.standard_normal((4, 4, 3))
    mask = np.arange(4) < np.array([0, 1, 2, 3])[:, None]
    np.testing.assert_array_equal(curvature(tokens, mask).isnan(), [True, True, True, False])
    assert math.isnan(curvature(tokens[0, :1])) and math.isnan(curvature(tokens[0, :2]))


def test_trap_12_half_precision_is_upcast():
    corner = torch.tensor([[0, 0], [30_000, 0], [30_000, 30_000]], dtype=torch.float16)
    assert curvature(corner) == pytest.approx(math.pi / 2)


def test_trap_14_repeated_tokens_are_left_out_and_counted(rng):
    walk = rng.standard_normal((6, 4))
    repeated = np.vstack([walk[:3], walk[2:]])
    steps = np.diff(repeated, axis=0)
    cosines = [
        u @ w / np.linalg.norm(u) / np.linalg.norm(w)
        for u, w in zip(steps, steps[1:], strict=False)
        if u.any() and w.any()
    ]
    assert len(cosines) == 3
    assert curvature(repeated) == pytest.approx(np.arccos(cosines).mean())
    assert (
        str(zero_differences(repeated)) == "1" and zero_differences(walk) == 0
    )  # a count is a whole number
    assert math.isnan(curvature(np.ones((5, 3)))) and zero_differences(np.ones((5, 3))) == 4
    padded = np.vstack([walk, np.zeros((4, 4))])
    assert zero_differences(padded, np.arange(10) < 6) == 0


def test_trap_14_the_cosine_is_clipped():
    for seed in range(40):
        line = np.random.default_rng(seed).standard_normal(64).astype(np.float32)
        tokens = np.arange(20, dtype=np.float32)[:, None] * line
        assert 0 <= curvature(tokens) < 0.01
