"""Judges of what is not a run of a trained image model: texts, predictions, detectors, two towers, a printed table."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from papers.worlds import DEPTH, MadeUp, World, rising, verdicts

from layerscope.logit_lens import Reading
from layerscope_papers import catalogue
from layerscope_papers.language import SMALL
from layerscope_papers.tracing import detectors, generated, parameters, settling, towers


def test_text_of_every_layer(monkeypatch):
    def made(good):
        curves = {
            "accuracy": rising(0.2, 0.3),
            "perplexity": rising(50.0, 10.0),
            "coherence": rising(0.4, 0.5),
            "diversity": rising(0.8, 0.9),
        }
        poor = {
            "accuracy": rising(0.0, 0.3),
            "perplexity": rising(5000.0, 10.0),
            "coherence": rising(0.1, 0.5),
            "diversity": rising(0.1, 0.9),
        }
        monkeypatch.setattr(
            generated,
            "open_generation",
            lambda folder: MadeUp(
                curves if folder.asset.model.objective == good else poor
            ),
        )
        return set(verdicts("T-fig9", World(None, SMALL)).values())

    assert made("aligned") == {"held"}
    assert made("standard") == {"did not hold"}


def reading(*, early):
    """Return what a lens reads on 20 texts of 6 new tokens: predictions that settle soon, or only at the last layer."""
    draws, rows = np.random.default_rng(0), []
    for text, position in np.ndindex(20, 6):
        settles = draws.integers(2, 8) if early else DEPTH
        # what does not settle agrees with the last layer at the first one, and then no more
        ids = [
            9 if layer >= settles or (not early and layer == 1) else layer
            for layer in range(DEPTH + 1)
        ]
        rows += [
            {
                "sample": str(text),
                "position": position,
                "token": "a",
                "generated": True,
                "counted": True,
                "rank": 1,
                "layer": layer,
                "id": number,
                "prediction": str(number),
                "probability": 0.5,
                "truth": None,
                "settles": settles,
            }
            for layer, number in enumerate(ids)
        ]
    grid = pd.DataFrame(rows)
    settled = grid[grid["layer"] == DEPTH].assign(layer=lambda found: found["settles"])
    names = tuple(map(str, range(20)))
    return Reading(
        "m", "model", "d", "next", DEPTH, 1, names, names, names, grid, settled
    )


@pytest.mark.parametrize("early, word", [(True, "held"), (False, "did not hold")])
def test_where_predictions_settle(monkeypatch, early, word):
    monkeypatch.setattr(settling, "open_reading", lambda folder: reading(early=early))
    assert set(verdicts("T-fig19", World(None, SMALL)).values()) == {word}


@pytest.mark.parametrize("good, word", [(True, "held"), (False, "did not hold")])
def test_detectors_with_a_loss_at_every_layer(monkeypatch, good, word):
    def made(assets, model):
        curve = rising(50.0, 60.0) if model.every == good else rising(0.0, 55.0, 3)
        return pd.Series(curve + 0.1 * model.seed, index=range(1, DEPTH + 1))

    monkeypatch.setattr(detectors, "ap50", made)
    assert set(verdicts("T-fig18", World(None, detectors.Shape())).values()) == {word}


def clip(sign, noise):
    """Return the comparison of two towers of 6 layers whose similarity rises or falls with depth."""
    depth = np.arange(7) / 6
    square = sign * (depth[:, None] + depth) / 2 + noise

    def similarity(a=0, b=1, metric="", variant=""):
        return pd.DataFrame(square, range(7), range(7))

    return SimpleNamespace(similarity=similarity)


@pytest.mark.parametrize("sign, word", [(1, "held"), (-1, "did not hold")])
def test_similarity_within_and_across_two_towers(monkeypatch, sign, word):
    def made(folder):
        draws = np.random.default_rng(int(folder.asset.model))
        return clip(sign, draws.normal(0, 1e-3, (7, 7)))

    monkeypatch.setattr(towers, "open_comparison", made)
    small = catalogue.recipes()["T-fig22"].scales["small"]
    assert set(verdicts("T-fig22", World(None, small)).values()) == {word}


def in_print(more):
    """Return a table whose totals are too large by a number, and whose savings are all 50 %."""
    rows = []
    for line in parameters.LINES:
        total = line.base + line.heads + more
        rows += [
            {"quantity": f"{line.model}, a classifier per layer", "value": total},
            {"quantity": f"{line.model}, saved by sharing [%]", "value": 50.0},
        ]
    return {"T-tab1": {"printed": rows}}


def test_the_printed_table(monkeypatch):
    assert verdicts("T-tab1", World(None)) == {
        "totals": "held",
        "savings": "held",
        "columns": "did not hold",
    }
    consistent = [replace(line, printed_base=line.base) for line in parameters.LINES]
    monkeypatch.setattr(parameters, "LINES", consistent)
    monkeypatch.setattr(parameters, "WRITTEN", in_print(1))
    assert set(verdicts("T-tab1", World(None)).values()) == {"did not hold"}
    monkeypatch.setattr(parameters, "WRITTEN", in_print(0))
    assert verdicts("T-tab1", World(None)) == {
        "totals": "held",
        "savings": "did not hold",
        "columns": "held",
    }
