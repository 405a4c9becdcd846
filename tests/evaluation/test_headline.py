"""The error of the difference in the headline."""

import math

import pandas as pd
import pytest
import tiny
from frames import scored

import layerscope
from layerscope.scores import Evaluation
from layerscope.scores.shifts import error_of_gain, rights_of


def test_the_headline_has_the_error_of_its_difference(bert):
    """Of one task it is paired over the samples; of three over the tasks, as select judges them."""
    texts = pd.DataFrame(
        {
            "text": [f"w{i % 7} {text}" for i, text in enumerate(tiny.texts(70))],
            "label": [*"abcdefg"] * 10,
        }
    )
    found = layerscope.evaluate(bert, {"linear-probe": texts})
    best = int(found.summary()["best_layer"].iloc[0])
    grid = found.grids()[0]
    (right,) = rights_of(grid).values()
    apart = right[best] - right[None]
    assert error_of_gain(grid, best, None) == pytest.approx(
        apart.std(ddof=1) / len(apart) ** 0.5
    )
    answer = found.document().answer
    assert (
        apart.any()
        and answer.count("±") == 2
        and "points against the model as shipped" in answer
    )
    gains = [0.1, 0.2, 0.6]
    rows = scored(
        {task: [0.1, 0.2 + gain, 0.2] for task, gain in zip("abc", gains, strict=True)}
    )
    assert error_of_gain(Evaluation(rows).grids()[0], 1, 2) == pytest.approx(
        pd.Series(gains).sem()
    )
    two = Evaluation(rows[rows["task"] != "c"])
    assert (
        math.isnan(error_of_gain(two.grids()[0], 1, 2))
        and "±" not in two.document().answer
    )
