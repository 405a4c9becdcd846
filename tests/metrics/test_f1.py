"""F1 of every layer against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from layerscope import LayerscopeError
from layerscope.metrics import f1


@pytest.mark.parametrize("classes", [2, 5])
def test_it_is_scikit_learns(classes: int):
    rng = np.random.default_rng(0)
    labels, predictions = rng.integers(0, classes, 60), rng.integers(0, classes, (60, 3))
    labels[labels == 3] = 0  # a class that is predicted and never there
    how = {"average": "binary"} if classes == 2 else {"average": "macro"}
    wanted = [f1_score(labels, column, **how) for column in predictions.T]
    assert f1(predictions, labels).tolist() == pytest.approx(wanted)
    assert f1(predictions, labels, classes).tolist() == pytest.approx(wanted)


def test_what_does_not_fit_is_refused():
    with pytest.raises(LayerscopeError, match="one label for each row"):
        f1(np.zeros((3, 2), int), np.zeros(2, int))
