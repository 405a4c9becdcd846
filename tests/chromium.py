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

import pandas as pd
import pytest
import tiny

from layerscope.profiling import profile
from layerscope.runs import COLUMNS

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
def language(tmp_path_factory):
    """Return a run of a language model: tokens, perplexity, saturation, and two poolings of its pairs."""
    model = tiny.saved(tiny.llama(), tmp_path_factory.mktemp("models") / "tiny-llama")
    out = tmp_path_factory.mktemp("runs") / "language"
    return profile(
        str(model),
        tiny.texts(40),
        out=out,
        command="layerscope profile tiny-llama",
    )


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


@pytest.fixture(scope="session")
def frame_of():
    """Return a function that reads a page's CSV of the long frame, with the dtypes of a run's table."""

    def read(path):
        read_as_text = dict.fromkeys(
            name for name, kind in COLUMNS.items() if kind == "object"
        )
        frame = pd.read_csv(
            path,
            dtype=dict.fromkeys(read_as_text, "object"),
            float_precision="round_trip",
        )
        present = {name: kind for name, kind in COLUMNS.items() if name in frame}
        frame = frame.astype(present)
        return frame.assign(
            **{
                name: frame[name].where(frame[name].notna(), None)
                for name in read_as_text
            }
        )

    return read
