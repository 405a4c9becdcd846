"""A real Chromium that opens a page as a reader does, and notes what a reader never sees."""

import base64
import gzip
import json
import os
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import tiny

from layerscope.profiling import profile

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage")


def find():
    """Return the path of a Chromium; without one the test is skipped, or fails where LAYERSCOPE_BROWSER=required."""
    found = os.environ.get("LAYERSCOPE_CHROMIUM") or next(
        filter(None, map(shutil.which, NAMES)), None
    )
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

    def drawn(self):
        """Wait until every plot is drawn."""
        self.tab.wait_for_selector("html[data-drawn=all]", timeout=60_000)
        return self

    def ask(self, script, *given):
        """Return what an expression of the page's own scripts gives."""
        return self.tab.evaluate(script, *given)

    def assert_unharmed(self):
        """Assert that the page said nothing, asked for nothing, ran nothing of its data and fits the window."""
        assert self.console == []
        inside = ("data:", "blob:")
        assert [url for url in self.requests if not url.startswith(inside)] == [
            self.tab.url
        ]
        assert self.ask("window.hit") is None
        assert self.ask("document.documentElement.scrollWidth <= innerWidth"), (
            "wider than the window"
        )

    def until(self, script):
        """Wait until an expression is true; the page's policy forbids what playwright's own waiting evaluates."""
        for _ in range(600):
            if self.ask(script):
                return
            self.tab.wait_for_timeout(50)
        raise TimeoutError(script)

    def text(self, selector):
        return self.tab.inner_text(selector)

    def texts(self, selector):
        return [found.strip() for found in self.tab.locator(selector).all_inner_texts()]

    def save(self, selector, folder):
        """Press what downloads, and return the file."""
        with self.tab.expect_download() as waiting:
            self.tab.click(selector)
        target = folder / waiting.value.suggested_filename
        waiting.value.save_as(target)
        return target


class Browser:
    """One Chromium for all tests of a session."""

    def __init__(self, chromium):
        self.chromium = chromium

    @contextmanager
    def open(self, path, width=1300, scheme="light", touch=False):
        context = self.chromium.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            has_touch=touch,
            accept_downloads=True,
        )
        opened = Opened(context.new_page())
        opened.tab.on(
            "console",
            lambda message: opened.console.append(f"{message.type}: {message.text}"),
        )
        opened.tab.on(
            "pageerror", lambda error: opened.console.append(f"error: {error}")
        )
        opened.tab.on("request", lambda request: opened.requests.append(request.url))
        opened.tab.goto(path.absolute().as_uri())
        try:
            yield opened.drawn()
        finally:
            context.close()


@contextmanager
def started():
    """Start a Chromium and end it."""
    path = find()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield Browser(chromium)
        chromium.close()


@pytest.fixture(scope="session")
def language(llama, tmp_path_factory):
    """Return a run of a language model: tokens, perplexity, saturation, and two poolings of its pairs."""
    out = tmp_path_factory.mktemp("runs") / "language"
    command = "layerscope profile tiny-llama"
    return profile(llama, tiny.texts(40), out=out, command=command)


def unpacked(part):
    """Return the rows of a plot as a page holds them, by columns."""
    columns = part["columns"]
    rows = [
        dict(zip(columns, values, strict=True))
        for values in zip(*columns.values(), strict=True)
    ]
    return [{k: v for k, v in row.items() if v is not None} for row in rows]


@pytest.fixture(scope="session")
def content_of():
    """Return a function that reads back what a page carries for its scripts."""

    def read(path):
        found = re.search(r'id="content">(.*?)</script>', path.read_text("utf-8"), re.S)
        return json.loads(gzip.decompress(base64.b64decode(found.group(1))))

    return read
