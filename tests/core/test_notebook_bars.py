"""Progress in a notebook: lines, and bars where ipywidgets can draw them."""

from typing import Any

import pytest
from rich import console

from layerscope.core import progress
from layerscope.core.progress import reporting

display = pytest.importorskip("IPython.display")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a notebook would show, in order."""
    found: list[Any] = []
    monkeypatch.setattr(console, "_is_jupyter", lambda: True)
    monkeypatch.setattr(display, "display", lambda thing, *_, **__: found.append(thing))
    return found


def report() -> None:
    reporter = reporting(True)
    reporter.say("a line [b]")
    with reporter.bar("layers", 3) as advance:
        advance(3)


def test_lines_and_bars_are_shown(shown: list[Any]) -> None:
    widgets = pytest.importorskip("ipywidgets")
    report()
    assert shown[0].text == "a line [b]\n"
    assert isinstance(shown[1], widgets.Output)


def test_without_ipywidgets_there_are_lines_alone(
    shown: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    report()
    assert [thing.text for thing in shown] == ["a line [b]\n"]
