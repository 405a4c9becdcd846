import numpy as np
import pytest


@pytest.fixture(scope="session")
def oracle(shared):
    with np.load(shared / "oracles" / "metrics.npz") as stored:
        return {key: stored[key] for key in stored.files}


@pytest.fixture
def rng():
    return np.random.default_rng(7)
