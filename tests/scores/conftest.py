import pytest
from frames import scored
from small_runs import bare, by_layer, labelled, pairs, rows, written

from layerscope.scores import Evaluation

__all__ = ["bare", "by_layer", "labelled", "pairs", "rows", "written"]


@pytest.fixture
def evaluation() -> Evaluation:
    """Two tasks at four layers: averages .2 .5 .6 .4."""
    return Evaluation(scored({"a": [0.1, 0.6, 0.5, 0.3], "b": [0.3, 0.4, 0.7, 0.5]}))
