import numpy as np
import pytest


class Oracle(dict):
    """Stored values by key, and the keys of those that some test has read."""

    def __init__(self, values):
        super().__init__(values)
        self.read = set()

    def __getitem__(self, key):
        self.read.add(key)
        return super().__getitem__(key)


@pytest.fixture(scope="session")
def oracle(shared):
    with np.load(shared / "oracles" / "metrics.npz") as stored:
        return Oracle({key: stored[key] for key in stored.files})


@pytest.fixture
def rng():
    return np.random.default_rng(7)
