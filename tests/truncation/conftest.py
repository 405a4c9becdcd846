import pytest
from tiny import one_thread
from typed import cli

from layerscope.truncation import costs

__all__ = ["cli", "one_thread"]


@pytest.fixture(autouse=True)
def _timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests look at what is written and not at how fast it is."""
    monkeypatch.setattr(costs, "FEWEST", 1)
    monkeypatch.setattr(costs, "SECONDS", 0.0)
