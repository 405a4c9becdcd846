import pandas as pd
import pytest
from frames import M, N, measured, scored

from layerscope.scores import Evaluation


@pytest.fixture
def evaluation():
    """Two tasks at four layers: averages .2 .5 .6 .4."""
    return Evaluation(scored({"a": [0.1, 0.6, 0.5, 0.3], "b": [0.3, 0.4, 0.7, 0.5]}))


@pytest.fixture
def two_models():
    """Two models on two tasks; of one a score is missing."""
    return Evaluation(
        pd.concat(
            [scored({"a": M, "b": M}), scored({"a": N, "b": [*N[:3], None]}, "n")]
        ),
        "two models",
    )


@pytest.fixture
def lidar():
    """One metric of both, the lower the higher the scores."""
    return pd.concat(
        [
            measured({"lidar": [1 - v for v in M]}),
            measured({"lidar": [1 - v for v in N]}, "n"),
        ]
    )
