import pytest
from frames import scored

from layerscope.scores import Evaluation


@pytest.fixture
def evaluation() -> Evaluation:
    """Two tasks at four layers: averages .2 .5 .6 .4."""
    return Evaluation(scored({"a": [0.1, 0.6, 0.5, 0.3], "b": [0.3, 0.4, 0.7, 0.5]}))
