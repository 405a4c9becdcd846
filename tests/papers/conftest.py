import pytest

from layerscope_papers import intervals


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    """What is true or false by construction is seen in few resamples."""
    monkeypatch.setattr(intervals, "RESAMPLES", 200)
