import math

import numpy as np
import pytest
import references

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import infonce, infonce_bound


def test_agrees_with_the_reference(rng):
    a = rng.standard_normal((2, 12, 6))
    b = a + rng.standard_normal((2, 12, 6))
    for temperature in (0.05, 1.0):
        one_way = infonce(a, b, temperature, symmetric=False)
        both = infonce(a, b, temperature)
        for i in range(2):
            forth = references.infonce_one_way(a[i], b[i], temperature)
            back = references.infonce_one_way(b[i], a[i], temperature)
            assert float(one_way[i]) == pytest.approx(forth, rel=1e-9)
            assert float(both[i]) == pytest.approx((forth + back) / 2, rel=1e-9)


def test_bound_never_exceeds_log_n(rng):
    a = rng.standard_normal((30, 8))
    for b in (a, a + rng.standard_normal((30, 8)), rng.standard_normal((30, 8))):
        bound = infonce_bound(a, b)
        assert bound <= math.log(30)
        assert bound == pytest.approx(math.log(30) - infonce(a, b))


def test_does_not_see_order_scale_or_rotation(rng):
    a, b = rng.standard_normal((2, 15, 6))
    order, rotation = rng.permutation(15), np.linalg.qr(rng.standard_normal((6, 6)))[0]
    assert infonce(3 * a[order] @ rotation, b[order] @ rotation) == pytest.approx(
        infonce(a, b), rel=1e-10
    )


def test_trap_13_the_value_belongs_to_its_block_size(rng):
    """A batch-mate changes the loss, so a block of another size is another quantity."""
    a = rng.standard_normal((64, 8))
    b = a + rng.standard_normal((64, 8))
    assert infonce(a, b) > infonce(a[:32], b[:32])
    blocks = infonce(a.reshape(2, 32, 8), b.reshape(2, 32, 8))
    assert float(blocks[0]) == pytest.approx(infonce(a[:32], b[:32]), rel=1e-12)


def test_errors(rng):
    a = rng.standard_normal((5, 3))
    with pytest.raises(LayerscopeError, match="1 sample"):
        infonce(a[:1], a[:1])
    with pytest.raises(LayerscopeError, match="a has 5 rows and b has 4"):
        infonce(a, a[:4])
    with pytest.raises(LayerscopeError, match="3 features and b has 2"):
        infonce(a, a[:, :2])
    with pytest.raises(LayerscopeError, match="temperature=0"):
        infonce(a, a, temperature=0)
