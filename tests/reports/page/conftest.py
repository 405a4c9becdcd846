import json
import re

import browser as chromium
import pandas as pd
import pytest
import tiny

from layerscope.profiling import profile
from layerscope.runs import COLUMNS


@pytest.fixture(scope="session")
def browser():
    with chromium.started() as found:
        yield found


@pytest.fixture(scope="session")
def language(tmp_path_factory):
    """Return a run of a language model: tokens, perplexity, saturation, and two poolings of its pairs."""
    model = tiny.saved(tiny.llama(), tmp_path_factory.mktemp("models") / "tiny-llama", special=False)
    out = tmp_path_factory.mktemp("runs") / "language"
    return profile(str(model), tiny.texts(40), out=out, progress=False, command="layerscope profile tiny-llama")


@pytest.fixture(scope="session")
def content_of():
    """Return a function that reads back what a page carries for its scripts."""

    def read(path):
        found = re.search(r'<script type="application/json" id="content">(.*?)</script>', path.read_text("utf-8"), re.S)
        return json.loads(found.group(1))

    return read


@pytest.fixture(scope="session")
def frame_of():
    """Return a function that reads a page's CSV of the long frame, with the dtypes of a run's table."""

    def read(path):
        read_as_text = dict.fromkeys(name for name, kind in COLUMNS.items() if kind == "object")
        frame = pd.read_csv(path, dtype=dict.fromkeys(read_as_text, "object"), float_precision="round_trip")
        present = {name: kind for name, kind in COLUMNS.items() if name in frame}
        frame = frame.astype(present)
        return frame.assign(**{name: frame[name].where(frame[name].notna(), None) for name in read_as_text})

    return read
