import numpy as np
import pytest
import references
import torch

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import layer_accuracy, perplexity, saturation_layer


def test_saturation_agrees_with_the_reference(rng):
    tops = rng.integers(0, 3, (4, 50, 8))
    for first in (0, 1):
        values = saturation_layer(tops, first)
        want = [[references.saturation(row, first) for row in block] for block in tops]
        np.testing.assert_array_equal(values, want)
        assert values.dtype == torch.int64


def test_saturation_wants_the_prediction_never_to_change_again():
    assert int(saturation_layer(np.array([5, 2, 5, 5]))) == 3
    assert int(saturation_layer(np.array([5, 5, 5]))) == 1
    assert int(saturation_layer(np.array([1, 2, 3]))) == 3
    with pytest.raises(LayerscopeError, match="at least one layer"):
        saturation_layer(np.empty((3, 0)))


def test_layer_accuracy(rng):
    tops, labels = rng.integers(0, 3, (5, 6, 4)), rng.integers(0, 3, (5, 6))
    np.testing.assert_allclose(
        layer_accuracy(tops, labels), (tops == labels[..., None]).mean((0, 1))
    )
    with pytest.raises(
        LayerscopeError, match=r"predictions has shape \(5, 6, 4\) and labels \(5,\)"
    ):
        layer_accuracy(tops, labels[:, 0])


def test_perplexity(rng):
    probabilities = rng.uniform(0.1, 1, (3, 20))
    values = perplexity(-np.log(probabilities))
    np.testing.assert_allclose(values, probabilities.prod(1) ** (-1 / 20), rtol=1e-12)
    assert perplexity(np.full(9, np.log(50))) == pytest.approx(50)
    with pytest.raises(LayerscopeError, match="nll holds 1"):
        perplexity(np.array([1.0, np.nan]))
