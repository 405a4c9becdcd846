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

TEXT = {
    "accuracy": (0.2, 0.0, 0.3),
    "perplexity": (50.0, 5000.0, 10.0),
    "coherence": (0.4, 0.1, 0.5),
    "diversity": (0.8, 0.1, 0.9),
}
"""What is measured of text: at the first layer where that is good, and where it is not, and at the last layer."""


def texts(good):
    """Return the text of every layer, which is good early of aligned models, or of the others."""

    def made(folder):
        is_good = (folder.asset.model.objective == "aligned") == good
        curves = {
            name: rising(near if is_good else far, last)
            for name, (near, far, last) in TEXT.items()
        }
        return MadeUp(curves)

    return made


def reading(early):
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
    about = ("m", "model", "d", "next", DEPTH, 1, names, names, names)
    found = Reading(*about, grid, settled)
    return lambda folder: found


def detector(good):
    """Return the precision of detectors, that with a loss at every layer good early, or the other one."""

    def made(assets, model):
        curve = rising(50.0, 60.0) if model.every == good else rising(0.0, 55.0, 3)
        return pd.Series(curve + 0.1 * model.seed, index=range(1, DEPTH + 1))

    return made


def clip(rises):
    """Return the comparison of two towers of 6 layers whose similarity rises or falls with depth."""
    depth = np.arange(7) / 6
    square = (depth[:, None] + depth) / 2 * (1 if rises else -1)

    def made(folder):
        noise = np.random.default_rng(int(folder.asset.model)).normal(0, 1e-3, (7, 7))
        similarity = pd.DataFrame(square + noise, range(7), range(7))
        return SimpleNamespace(similarity=lambda *_, **__: similarity)

    return made


TOWERS = catalogue.recipes()["T-fig22"].scales["small"]
JUDGED = {
    "T-fig9": (generated, "open_generation", texts, SMALL),
    "T-fig18": (detectors, "ap50", detector, detectors.Shape()),
    "T-fig19": (settling, "open_reading", reading, SMALL),
    "T-fig22": (towers, "open_comparison", clip, TOWERS),
}
"""What a judge reads with, and what stands in its place where every claim is true, or false."""


@pytest.mark.parametrize("good, word", [(True, "held"), (False, "did not hold")])
@pytest.mark.parametrize("name", JUDGED)
def test_a_claim_holds_where_it_is_true_and_does_not_where_it_is_false(
    monkeypatch, name, good, word
):
    module, read, made, settings = JUDGED[name]
    monkeypatch.setattr(module, read, made(good))
    assert set(verdicts(name, World(None, settings)).values()) == {word}


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
