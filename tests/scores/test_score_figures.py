"""The figures of scores: average by depth, every layer on every task, and how metrics go with them."""

import math

import numpy as np
import pandas as pd
import pytest
from frames import scored

from layerscope.reports.figures import draw
from layerscope.scores import Evaluation, correlate
from layerscope.scores.pairing import pairings
from layerscope.show.figures.draw import figures
from layerscope.show.figures.style import COLUMN_WIDTH, TEXT_WIDTH, styled

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


def drawn(name, evaluation, width=TEXT_WIDTH, runs=()):
    """Return one figure of an evaluation, by its name."""
    document = evaluation.document(runs=runs)
    given = [(" on ".join(member.title), member) for member in document.members or (document,)]
    with styled():
        return dict(figures(given))[name](width)


def test_averages_lie_over_each_other_by_percent(evaluation):
    (axis,) = drawn("scores", evaluation).axes
    lines = [line for line in axis.lines if len(line.get_xdata()) > 3]
    assert [list(line.get_xdata()) for line in lines] == [
        pytest.approx([0, 100 / 3, 200 / 3, 100]),
        [0, 20, 40, 60, 100],
    ]
    assert list(lines[0].get_ydata()) == pytest.approx(100 * np.mean([M, N], axis=0))
    rings = [line for line in axis.lines if line.get_marker() == "o" and len(line.get_xdata()) == 1]
    assert [ring.get_xdata()[0] for ring in rings] == pytest.approx(
        [200 / 3, 40]
    )  # layer 0 is not a candidate
    assert any(list(line.get_ydata()) == [40.0, 40.0] for line in axis.lines)
    assert axis.get_xlabel() == "depth (%)"


@pytest.mark.parametrize("width", [TEXT_WIDTH, COLUMN_WIDTH])
def test_maps_hold_what_layers_win_on_each_task(evaluation, width):
    figure = drawn("scores_by_task", evaluation, width)
    first, second, bar = figure.axes
    assert np.array(first.collections[0].get_array()) == pytest.approx(
        100 * (np.array([M, N]) - [[0.5], [0.3]])
    )
    gains = 100 * (np.array([[*M, 0.5, 0.6], [*N, math.nan, 0.1]]) - [[0.6], [0.1]])
    assert np.ma.filled(second.collections[0].get_array(), math.nan) == pytest.approx(
        gains, nan_ok=True
    )
    assert "less that of the model as shipped or the last layer" in bar.get_xlabel().replace(
        "\n", " "
    )
    box, renderer = figure.bbox, figure.canvas.get_renderer()
    for text in (*first.get_yticklabels(), *second.get_xticklabels(), bar.xaxis.label):
        extent = text.get_window_extent(renderer)
        assert extent.x0 >= box.x0 - 1 and extent.x1 <= box.x1 + 1, text.get_text()


def test_bars_are_the_correlations_of_the_runs_metrics(evaluation, labelled):
    assert list(map(len, pairings([labelled], evaluation, evaluation.grids()))) == [1, 0]
    figure = drawn("correlations", evaluation, runs=[labelled])
    panels = {axis.get_title(loc="left"): axis for axis in figure.axes}
    wanted = correlate(labelled, evaluation, statistics=["kendall"])
    wanted = wanted[(wanted["target"] == "mean score") & wanted["estimate"].notna()].set_index(
        "metric"
    )
    titles = [label.get_text() for label in panels["Spearman's ρ"].get_yticklabels()]
    row = titles.index("effective rank")
    bar = panels["Kendall's τ"].patches[row]
    assert bar.get_width() == wanted.loc["effective_rank", "estimate"]
    assert panels["Kendall's τ"].lines[row].get_xdata()[1] == wanted.loc["effective_rank", "high"]


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
