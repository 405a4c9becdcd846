from pathlib import Path

import pytest
from frames import scored

from layerscope.scores import Evaluation


@pytest.fixture(scope="session")
def published(shared: Path) -> Path:
    """Return what the authors of Layer by Layer published for two models."""
    folder = shared / "data" / "published_layerwise"
    if not folder.is_dir():
        pytest.skip(f"no published scores at {folder}")
    return folder


@pytest.fixture
def evaluation() -> Evaluation:
    """Two tasks at four layers: averages .2 .5 .6 .4."""
    return Evaluation(scored({"a": [0.1, 0.6, 0.5, 0.3], "b": [0.3, 0.4, 0.7, 0.5]}))
