import pytest
from tiny import one_thread
from typed import cli

from layerscope.truncation import speed

__all__ = ["cli", "one_thread"]


@pytest.fixture(autouse=True)
def few_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of a few numbers is not measured better by thirty forwards than by three."""
    monkeypatch.setattr(speed, "FEWEST", 3)
    monkeypatch.setattr(speed, "MOST", 3)
