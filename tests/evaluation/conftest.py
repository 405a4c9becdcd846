import pandas as pd
import pytest
import tiny

from layerscope.evaluation.stored_texts import TextStates
from layerscope.profiling import forward_pass


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    return str(tiny.vit(tmp_path_factory.mktemp("models") / "tiny-vit"))


@pytest.fixture
def table(tmp_path):
    """Return a function that writes columns into a CSV, and returns its path."""

    def write(name="rows", **columns):
        path = tmp_path / f"{name}.csv"
        pd.DataFrame(columns).to_csv(path, index=False)
        return str(path)

    return write


@pytest.fixture
def texts(table):
    """A table of 60 texts that are of class a where they begin with an even word."""
    rows = tiny.texts(60)
    labels = ["ab"[int(text.split()[0][1:]) % 2] for text in rows]
    return table("topics", text=rows, label=labels)


@pytest.fixture
def counted(monkeypatch):
    """Every sample of a task of mteb that goes through a model, in order."""
    seen = []
    batch = TextStates._batch

    def counting(self, samples, longest):
        seen.extend(samples)
        return batch(self, samples, longest)

    monkeypatch.setattr(TextStates, "_batch", counting)
    return seen


@pytest.fixture
def forwards(monkeypatch):
    """How many samples each forward of the pass held."""
    seen = []
    forward = forward_pass._forward

    def counting(job, rows, *more):
        seen.append(len(rows))
        return forward(job, rows, *more)

    monkeypatch.setattr(forward_pass, "_forward", counting)
    return seen
