"""The judges of readers' questions on values in which the claim is true by construction, and in which it is false."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from papers.worlds import World, verdicts

from layerscope_papers.language import SMALL
from layerscope_papers.questions import parse


@pytest.mark.parametrize(("lost", "word"), [(0.0, "held"), (0.05, "did not hold")])
def test_labels_of_words(monkeypatch, lost, word):
    def scores(folder):
        model = folder.asset.model
        score = (
            0.8
            - lost * (model.objective == "aligned")
            + np.random.default_rng(model.seed).normal(0, 1e-3, 9)
        )
        return SimpleNamespace(
            table=lambda: pd.DataFrame({f"{parse.TASK} (token probe)": score})
        )

    monkeypatch.setattr(parse, "open_evaluation", scores)
    assert set(verdicts("Q-parse", World(None, SMALL)).values()) == {word}


def test_words_of_python_know_the_brackets_around_them(monkeypatch):
    module = SimpleNamespace()
    monkeypatch.setattr(parse, "MODULES", ("json",))
    monkeypatch.setattr(parse, "import_module", lambda name: module)
    monkeypatch.setattr(
        parse.inspect, "getsource", lambda _: "x = 1  # none\ny = f([1, (2)], 'a b')\n"
    )
    (line,) = parse.depths()
    assert [word for word, _ in line] == [
        "y",
        "=",
        "f",
        "(",
        "[",
        "1",
        ",",
        "(",
        "2",
        ")",
        "]",
        ",",
        '""',
        ")",
    ]
    assert "".join(depth for _, depth in line) == "00012222222111"
