"""A real Chromium that opens a page as a reader does, and notes what a reader never sees."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage")


def find() -> str:
    """Return the path of a Chromium; without one the test is skipped, or fails where LAYERSCOPE_BROWSER=required."""
    found = os.environ.get("LAYERSCOPE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        missing = "no Chromium on the path: install one (apt-get install chromium), or set LAYERSCOPE_CHROMIUM"
        if os.environ.get("LAYERSCOPE_BROWSER") == "required":
            pytest.fail(missing)
        pytest.skip(missing)
    return found


@dataclass
class Opened:
    """A page in a tab, with every word on its console and every address it asked for."""

    tab: Any
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def drawn(self) -> "Opened":
        """Wait until every plot is drawn."""
        self.tab.wait_for_selector("html[data-drawn=all]", timeout=60_000)
        return self

    def ask(self, script: str, *given: Any) -> Any:
        """Return what an expression of the page's own scripts gives."""
        return self.tab.evaluate(script, *given)

    def text(self, selector: str) -> str:
        return self.tab.inner_text(selector)

    def texts(self, selector: str) -> list[str]:
        return [found.strip() for found in self.tab.locator(selector).all_inner_texts()]

    def save(self, selector: str, folder: Path) -> Path:
        """Press what downloads, and return the file."""
        with self.tab.expect_download() as waiting:
            self.tab.click(selector)
        target = folder / waiting.value.suggested_filename
        waiting.value.save_as(target)
        return target


class Browser:
    """One Chromium for all tests of a session."""

    def __init__(self, chromium: Any) -> None:
        self.chromium = chromium

    @contextmanager
    def open(self, path: Path, width: int = 1300, scheme: str = "light", touch: bool = False) -> Iterator[Opened]:
        context = self.chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, has_touch=touch, accept_downloads=True
        )
        opened = Opened(context.new_page())
        opened.tab.on("console", lambda message: opened.console.append(f"{message.type}: {message.text}"))
        opened.tab.on("pageerror", lambda error: opened.console.append(f"error: {error}"))
        opened.tab.on("request", lambda request: opened.requests.append(request.url))
        opened.tab.goto(path.absolute().as_uri())
        try:
            yield opened.drawn()
        finally:
            context.close()


@contextmanager
def started() -> Iterator[Browser]:
    """Start a Chromium and end it."""
    path = find()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield Browser(chromium)
        chromium.close()
