import numpy as np
import pytest
import references
import torch

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import dime


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_agrees_with_the_reference(rng, alpha):
    a = rng.standard_normal((2, 20, 6))
    b = a[..., :4] + 0.5 * rng.standard_normal((2, 20, 4))
    orders = np.stack([rng.permutation(20) for _ in range(3)])
    values = dime(a, b, alpha, orders)
    for i in range(2):
        assert float(values[i]) == pytest.approx(
            references.dime(a[i], b[i], orders, alpha), abs=1e-10
        )


def test_permutes_samples_and_not_features(rng):
    """More samples than features is where D x D covariances would answer another question."""
    a = rng.standard_normal((200, 5))
    b = a + 0.3 * rng.standard_normal((200, 5))
    assert dime(a, b) > 0.3
    assert abs(dime(a, rng.standard_normal((200, 5)))) < 0.05


def test_seeded_permutations(rng):
    a, b = rng.standard_normal((2, 30, 4))
    draw = np.random.default_rng(3)
    orders = np.stack([draw.permutation(30) for _ in range(4)])
    assert dime(a, b, permutations=4, seed=3) == dime(a, b, permutations=torch.from_numpy(orders))
    assert dime(a, b, permutations=np.int64(4), seed=3) == dime(a, b, permutations=4, seed=3)
    assert dime(a, b, permutations=4, seed=3) != dime(a, b, permutations=4, seed=4)


def test_trap_13_the_value_belongs_to_its_block_size(rng):
    a = rng.standard_normal((64, 8))
    b = a + 0.5 * rng.standard_normal((64, 8))
    assert abs(dime(a, b) - dime(a[:16], b[:16])) > 0.05


def test_errors(rng):
    a = rng.standard_normal((5, 3))
    with pytest.raises(LayerscopeError, match="permutations=0"):
        dime(a, a, permutations=0)
    with pytest.raises(
        LayerscopeError, match=r"shape \(1, 5\) are not rows that reorder 0 \.\.\. 4"
    ):
        dime(a, a, permutations=np.array([[0, 1, 2, 3, 3]]))
    with pytest.raises(LayerscopeError, match="equal leading"):
        dime(np.stack([a, a]), a)
