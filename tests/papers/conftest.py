import pytest

from layerscope_papers import recipe


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    """What is true or false by construction is seen in few resamples."""
    monkeypatch.setattr(recipe, "RESAMPLES", 200)
