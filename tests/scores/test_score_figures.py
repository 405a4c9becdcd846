"""The figures of scores: average by depth, and every layer on every task."""

import math

import numpy as np
import pandas as pd
import pytest
from frames import scored

from layerscope.reports.figures import draw
from layerscope.scores import Evaluation
from layerscope.show.drawing import figures
from layerscope.show.figure import COLUMN_WIDTH, TEXT_WIDTH

M, N = [0.1, 0.6, 0.8, 0.4], [0.9, 0.1, 0.2, 0.4]
LONG = "AVeryLongNameOfATaskThatNobodyWouldWriteOutTwiceClassification"


@pytest.fixture(scope="module")
def evaluation(labelled) -> Evaluation:
    model = labelled.info["model"]["name"]
    shipped = pd.DataFrame(
        [
            {"model": model, "revision": "r", "task": t, "score": v}
            for t, v in (("a", 0.5), (LONG, 0.3))
        ]
    )
    deep = scored({"a": [*M, 0.5, 0.6], LONG: [*N, None, 0.1]}, "deep")
    return Evaluation(pd.concat([scored({"a": M, LONG: N}, model), shipped, deep]), "two")


def drawn(name, evaluation, width=TEXT_WIDTH):
    """Return one figure of an evaluation, by its name."""
    document = evaluation.document()
    given = [(" on ".join(member.title), member) for member in document.members or (document,)]
    return dict(figures(given))[name](width)


@pytest.mark.parametrize("width", [TEXT_WIDTH, COLUMN_WIDTH])
def test_maps_hold_what_layers_win_on_each_task(evaluation, width):
    figure = drawn("scores_by_task", evaluation, width)
    assert float(figure.svg.partition('width="')[2].partition('"')[0]) == pytest.approx(
        72 * width, abs=6
    )
    first, second = [
        pd.DataFrame(panel["data"]["values"]).pivot_table(
            index="row", columns="column", values="value", sort=False, dropna=False
        )
        for panel in figure.spec["concat"]
    ]
    assert first.to_numpy() == pytest.approx(100 * (np.array([M, N]) - [[0.5], [0.3]]))
    gains = 100 * (np.array([[*M, 0.5, 0.6], [*N, math.nan, 0.1]]) - [[0.6], [0.1]])
    assert second.to_numpy() == pytest.approx(gains, nan_ok=True)


def test_scores_alone_have_their_files(evaluation, tmp_path):
    alone = Evaluation(evaluation.scores[evaluation.scores["model"] == "deep"])
    names = {path.name for path in draw(alone, tmp_path)}
    wanted = (
        f"{name}{width}.{kind}"
        for name in ("scores", "scores_by_task")
        for width in ("", "-column")
        for kind in ("png", "pdf", "svg")
    )
    assert names == set(wanted) == {path.name for path in tmp_path.iterdir()}
