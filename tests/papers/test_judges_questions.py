"""The judges of readers' questions on values in which the claim is true by construction, and in which it is false."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from papers.worlds import World, verdicts

from layerscope_papers.language import SMALL
from layerscope_papers.questions import draft, parse


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
            table=lambda: pd.DataFrame(
                {f"{task} (token probe)": score for task in parse.TASKS}
            )
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
    (line,) = parse.depths(SMALL)
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


@pytest.mark.parametrize(
    ("gains", "words"),
    [
        ({"aligned": 0.8}, {"aligned": "held"}),
        ({"aligned": -0.8}, {"aligned": "did not hold"}),
        ({"aligned": 0.0}, {"aligned": "not decided"}),
    ],
)
def test_accepted_length_at_half_depth(monkeypatch, gains, words):
    half, layers = SMALL.depth // 2, pd.RangeIndex(1, SMALL.depth + 1)

    def drafted(folder):
        model = folder.asset.model
        kind = model.objective
        # other layers say the opposite, and seeds differ by more than the kinds do
        length = (
            2
            + model.seed
            + np.random.default_rng(len(kind) + model.seed).normal(0, 1e-2, SMALL.depth)
        )
        length += gains.get(kind, 0.0) * np.where(layers == half, 1, -1)
        return pd.DataFrame({draft.AGREEMENT: 50.0, draft.LENGTH: length}, index=layers)

    monkeypatch.setattr(draft, "opened", drafted)
    history = SimpleNamespace(
        metric=lambda _: pd.Series(range(SMALL.depth + 1), dtype=float)
    )
    monkeypatch.setattr(draft, "open_run", lambda _: history)
    world = World(None, SMALL)
    assert verdicts("Q-draft", world) == words
    found = draft.longer_drafts.judge(world)
    assert [plot.title for plot in found.plots] == [
        "Accepted length by layer",
        "Agreement by layer",
        "Perplexity by layer",
    ]
    assert [number.value for number in found.numbers[1::2]] == [8.0] * 2
