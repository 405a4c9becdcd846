"""Scores on the page: alone, and beside a run of the same model."""

import math

import numpy as np
import pandas as pd
import pytest
from frames import scored, shipped

from layerscope import report
from layerscope.scores import Evaluation

LONG = "AVeryLongNameOfATaskThatNobodyWouldWriteOutTwiceClassification"
HOSTILE = "</script><script>window.hit = 1</script><b>%{y}</b>"
SCORES = {
    "plain": [0.1, 0.30000000000000004, 0.7, 0.5],
    LONG: [0.2, 0.9, 0.6, 1 / 3],
    HOSTILE: [0.8, 0.1, 0.2, 0.4],
}
SHIPPED = {"plain": 0.55, LONG: 0.35, HOSTILE: 0.45}
AVERAGE, GRID = "scores-2", "scores_by_task"
CHARTS = "[...document.querySelectorAll(`#${CSS.escape(id)} .plot`)].map(p => p.chart)"
DATA = f"(id) => {CHARTS}.map(chart => chart.data('source_0'))"
# the rows of one mark as its layer of the chart draws them
DRAWN = (
    f"([id, mark]) => {CHARTS}.flatMap(chart => Object.keys(chart.getState({{data: () => true}}).data)"
    ".filter(name => name.startsWith('data_')).map(name => chart.data(name))"
    ".find(rows => rows.length && rows.every(row => row.mark === mark && 'at' in row)) ?? [])"
    ".filter(row => row.series !== 'as shipped').map(({run, at, y}) => ({run, at, y}))"
)


def evaluated(model, **more):
    """Return scores of a model on three tasks at four layers, one with an interval, and of the model as shipped."""
    layers = scored(SCORES, model, site="normed", pooling="mean", **more)
    layers["stderr"] = np.where(layers["task"] == "plain", 0.0123, math.nan)
    rows = pd.concat([layers, shipped(model, **SHIPPED)], ignore_index=True)
    return Evaluation(rows, "judged here <i>")


@pytest.fixture(scope="module")
def evaluation(labelled):
    return evaluated(labelled.info["model"]["name"])


@pytest.fixture(scope="module")
def both(labelled, evaluation, tmp_path_factory):
    return report([labelled, evaluation], tmp_path_factory.mktemp("page") / "both.html")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return a page of two models' scores alone: one with a gap, and of another depth."""
    plain, other = [0.1, 0.2, 0.3, 0.4, 0.2, 0.1], [0.2, None, 0.4, 0.5, 0.6, 0.7]
    deep = scored({"plain": plain, "other": other, LONG: plain}, "deep")
    rows = pd.concat(
        [
            evaluated("<img src=x onerror='window.hit=1'>").scores,
            Evaluation(deep).scores,
        ]
    )
    found = Evaluation(rows, "published.csv")
    found.failed["gone"] = "data set <gone> cannot be had"
    return report(found, tmp_path_factory.mktemp("page") / "alone.html")


@pytest.mark.parametrize("page, width", [("both", 390), ("alone", 1300)])
def test_opens_without_a_word_a_request_or_harm(browser, request, page, width):
    path = request.getfixturevalue(page)
    with browser.open(path, width) as opened:
        opened.assert_unharmed()
        assert opened.ask("document.scripts.length") == 5
        assert opened.ask("document.querySelectorAll('main img, main i').length") == 0
        assert HOSTILE in opened.text("#scores")
    assert path.stat().st_size < 6e6


def test_plots_are_the_evaluations_values(browser, both, evaluation):
    (grid,) = evaluation.grids()
    with browser.open(both) as opened:
        (rows,) = opened.ask(DATA, AVERAGE)
        line = [row for row in rows if row["series"] != "as shipped"]
        assert [row["x"] for row in line] == [0, 1, 2, 3]
        assert [row["y"] for row in line] == pytest.approx(
            list(100 * grid.average), rel=1e-5
        )
        shipped = [row["y"] for row in rows if row["series"] == "as shipped"]
        assert shipped == pytest.approx([100 * grid.baseline.mean()] * 2, rel=1e-5)
        assert [row["x"] for row in rows if row.get("marked")] == [
            grid.average.idxmax()
        ]
        (cells,) = opened.ask(DATA, GRID)
        gains = (grid.scores - pd.Series(SHIPPED)).T
        shown = {(row["row"], int(row["column"])): row["value"] for row in cells}
        assert shown == pytest.approx(
            {
                (task, layer): 100 * gains.loc[task, layer]
                for task in SCORES
                for layer in range(4)
            },
            rel=1e-5,
        )
        end = 100 * np.percentile(abs(gains), 95)  # one cell in twenty lies beyond
        low, middle, high = opened.ask(
            f"(id) => {CHARTS}[0].scale('color').domain()",
            GRID,
        )
        assert (low, middle, high) == (pytest.approx(-end), 0, pytest.approx(end))
        # the last task is read best at layer 0, which is not a candidate
        rings = {row["row"]: row["column"] for row in cells if row.get("marked")}
        assert rings == {"plain": "2", LONG: "1", HOSTILE: "3"}


def test_scores_alone_are_a_whole_page(browser, alone):
    with browser.open(alone) as opened:
        assert (
            opened.ask(
                "['layers', 'numbers', 'compared'].map(id => document.getElementById(id))"
            )
            == [None] * 3
        )
        assert opened.text("h1") == "2 models on 4 tasks"
        assert "gone was not judged: data set <gone> cannot be had" in opened.text(
            "main"
        )
        assert "1 missing" in opened.text("header")

        def lines():
            found = {}
            for row in opened.ask(DRAWN, [AVERAGE, "line"]):
                found.setdefault(row["run"], []).append(row["at"])
            return list(found.values())

        assert [at[-1] for at in lines()] == [100, 100]
        opened.tab.uncheck("[data-run='0']")
        opened.drawn()
        assert lines() == [[0, 40, 60, 80, 100]]
        assert "left out with scores on fewer than" in opened.text("main")
