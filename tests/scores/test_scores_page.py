"""Scores on the page: alone, and beside a run of the same model, whose metrics they are compared with."""

import csv
import math

import numpy as np
import pandas as pd
import pytest
from frames import scored
from typed import cli

from layerscope import report
from layerscope.core.errors import LayerscopeError
from layerscope.scores import Evaluation, correlate, open_evaluation
from layerscope.scores.evaluation import COLUMNS

__all__ = ["cli"]

LONG = "AVeryLongNameOfATaskThatNobodyWouldWriteOutTwiceClassification"
HOSTILE = "</script><script>window.hit = 1</script><b>%{y}</b>"
SCORES = {
    "plain": [0.1, 0.30000000000000004, 0.7, 0.5],
    LONG: [0.2, 0.9, 0.6, 1 / 3],
    HOSTILE: [0.8, 0.1, 0.2, 0.4],
}
SHIPPED = {"plain": 0.55, LONG: 0.35, HOSTILE: 0.45}
CARDS = "(file) => cards.find(c => c.figure.file === file).plots"


def evaluated(model, **more):
    """Return scores of a model on three tasks at four layers, one with an interval, and of the model as shipped."""
    layers = scored(SCORES, model, site="normed", pooling="mean", **more)
    layers["stderr"] = np.where(layers["task"] == "plain", 0.0123, math.nan)
    shipped = pd.DataFrame(
        [{"model": model, "revision": "r", "task": t, "score": v} for t, v in SHIPPED.items()]
    )
    return Evaluation(pd.concat([layers, shipped], ignore_index=True), "judged here <i>")


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
        [evaluated("<img src=x onerror='window.hit=1'>").scores, Evaluation(deep).scores]
    )
    found = Evaluation(rows, "published.csv")
    found.failed["gone"] = "data set <gone> cannot be had"
    return report(found, tmp_path_factory.mktemp("page") / "alone.html")


@pytest.mark.parametrize(("page", "width"), [("both", 1300), ("both", 390), ("alone", 390)])
def test_opens_without_a_word_a_request_or_harm(browser, request, page, width):
    path = request.getfixturevalue(page)
    with browser.open(path, width) as opened:
        assert opened.console == []
        outside = [url for url in opened.requests if not url.startswith(("data:", "blob:"))]
        assert outside == [path.absolute().as_uri()]
        assert opened.ask("document.documentElement.scrollWidth <= innerWidth"), (
            "the page is wider than the window"
        )
        ends = opened.ask(
            "[...document.querySelectorAll('nav a')].map(a => a.getBoundingClientRect().right)"
        )
        assert max(ends) <= width, "a link to a section is cut"
        assert opened.ask("window.hit") is None
        assert opened.ask("document.scripts.length") == 4
        assert opened.ask("document.querySelectorAll('main img, main i').length") == 0
        assert all(
            opened.ask(
                "cards.flatMap(c => c.plots).map(p => p.querySelectorAll('.main-svg').length)"
            )
        )
        assert HOSTILE in opened.text("#every-score")
    assert path.stat().st_size < 6e6


def test_plots_are_the_evaluations_values(browser, both, evaluation):
    (grid,) = evaluation.grids()
    with browser.open(both) as opened:
        line, shipped, mark = opened.ask(f"({CARDS})('average-score-by-layer')[0].data")
        assert line["x"] == [0, 1, 2, 3] and line["y"] == pytest.approx(list(100 * grid.average))
        assert shipped["y"] == pytest.approx([100 * grid.baseline.mean()] * 2)
        best = int(grid.average.idxmax())
        assert (mark["x"], mark["y"]) == ([best], [pytest.approx(100 * grid.average[best])])
        cells, rings = opened.ask(f"({CARDS})('every-layer-on-every-task')[0].data")
        gains = (grid.scores - pd.Series(SHIPPED)).to_numpy().T
        assert np.array(cells["z"]) == pytest.approx(100 * gains, abs=1e-12)
        end = 100 * np.percentile(abs(gains), 95)  # one cell in twenty lies beyond
        assert (cells["zmin"], cells["zmax"]) == (pytest.approx(-end), pytest.approx(end))
        # the last task is read best at layer 0, which is not a candidate
        assert rings["x"] == [
            2,
            1,
            3,
        ]
        assert "70.00 %, +15.00 points against the model as shipped" in cells["hovertext"][0][2]
        opened.tab.check("input[name=axis][value=percent]")
        opened.drawn()
        assert opened.ask(f"({CARDS})('average-score-by-layer')[0].data[0].x") == pytest.approx(
            [0, 100 / 3, 200 / 3, 100]
        )


def test_metrics_are_compared_with_scores(browser, both, labelled, evaluation, tmp_path):
    wanted = correlate(labelled, evaluation)
    wanted = wanted[(wanted["target"] == "mean score") & wanted["estimate"].notna()]
    spearman = wanted[wanted["statistic"] == "spearman"].set_index("metric")
    with browser.open(both) as opened:
        bars = opened.ask(f"({CARDS})('metrics-and-scores')[0].data[0]")
        names = opened.ask("page.figures.find(f => f.kind === 'bars').choices[0].rows")
        assert len(names) == len(spearman) >= 5
        at = names.index("effective rank")
        row = spearman.loc["effective_rank"]
        assert bars["x"][at] == row["estimate"]
        assert bars["error_x"]["array"][at] == pytest.approx(max(0, row["high"] - row["estimate"]))
        with opened.save("#correlations [data-csv]", tmp_path).open(
            encoding="utf-8", newline=""
        ) as file:
            rows = {row["metric"]: row for row in csv.DictReader(file)}
        found = rows["effective rank"]
        assert float(found["Spearman's ρ, 95 % interval low"]) == row["low"]
        pearson = (
            wanted[wanted["statistic"] == "pearson"]
            .set_index("metric")
            .loc["effective_rank", "estimate"]
        )
        assert float(found["Pearson's r, 95 % interval"]) == pearson
        scatter = "page.figures.find(f => f.title === 'A metric against the average score')"
        (points,) = opened.ask(f"{scatter}.choices.find(c => c.choice === 'effective rank').series")
        assert points["x"] == list(labelled.metric("effective_rank"))[1:]
        assert points["y"] == list(evaluation.grids()[0].average)[1:]


def test_the_average_score_lies_over_each_metric(browser, both, evaluation):
    over = f"({CARDS})('effective-rank')[0].data.filter(t => t.yaxis === 'y2').map(t => t.y)"
    with browser.open(both) as opened:
        assert opened.ask(over) == [pytest.approx(list(100 * evaluation.grids()[0].average))]
        opened.tab.uncheck("#overlay")
        opened.drawn()
        assert opened.ask(over) == []


def test_the_download_of_every_score_is_the_evaluation(browser, both, evaluation, tmp_path):
    with browser.open(both) as opened:
        path = opened.save("#every-score [data-csv]", tmp_path)
        cells = opened.ask(
            "[...document.querySelectorAll('#by-task tbody tr')].map(r => r.textContent)"
        )
    texts = [name for name, kind in COLUMNS.items() if kind == "object"]
    found = pd.read_csv(path, dtype=dict.fromkeys(texts, "object"), float_precision="round_trip")
    # the first column says whose they are; none are mixes
    found = found.reindex(columns=list(COLUMNS)).astype(COLUMNS)
    found = found.assign(**{name: found[name].where(found[name].notna(), None) for name in texts})
    pd.testing.assert_frame_equal(found, evaluation.scores, check_exact=True)
    assert cells[2] == "250.0070.00 ±1.2360.0020.00"
    assert cells[4].startswith("as shipped")


def test_scores_alone_are_a_whole_page(browser, alone):
    with browser.open(alone) as opened:
        assert (
            opened.ask("['layers', 'numbers', 'compared'].map(id => document.getElementById(id))")
            == [None] * 3
        )
        assert opened.text("h1") == "2 models on 4 tasks"
        assert "gone was not judged: data set <gone> cannot be had" in opened.text("main")
        assert "1 missing" in opened.text("header")
        lines = (
            f"({CARDS})('average-score-by-layer')[0].data.filter(t => t.mode === 'lines+markers')"
        )
        assert opened.ask(f"{lines}.map(t => t.x.at(-1))") == [100, 100]
        assert len(opened.ask("document.querySelectorAll('#summary tbody tr')[1].textContent")) > 20
        opened.tab.uncheck("[data-run='0']")
        opened.drawn()
        assert opened.ask(f"{lines}.map(t => t.x)") == [[0, 40, 60, 80, 100]]
        assert "Left out of averages, with scores on too few tasks: layer 1." in opened.text(
            "#findings"
        )
        shown = opened.ask(
            "[...document.querySelectorAll('#every-score tbody tr')].map(r => r.cells[0].textContent)"
        )
        assert set(shown) == {"deep"}


def test_heads_are_whole_and_spark_lines_leave_no_empty_column(browser, alone):
    with browser.open(alone) as opened:
        heads = opened.texts(".table thead th")
        assert "by depth" not in heads and "oracle" in heads
        every = "[...document.querySelectorAll('.table thead th')].every"
        assert opened.ask(f"{every}(head => head.scrollWidth <= head.clientWidth)")


def test_many_tasks_and_layers_stay_light(tmp_path):
    tasks = {f"Task{i}": list(np.random.default_rng(i).random(25)) for i in range(32)}
    rows = pd.concat(
        [scored(tasks, model, site="normed", pooling="mean") for model in ("one", "two")]
    )
    assert report(Evaluation(rows), tmp_path / "page.html").stat().st_size < 6e6


def test_what_is_given_is_told_apart(labelled, evaluation, tmp_path, cli):
    saved = evaluation.save(tmp_path / "saved")
    other = evaluated("another")
    page = report([labelled.path, saved, other], tmp_path / "page.html").read_text("utf-8")
    assert "another" in page
    with pytest.raises(
        LayerscopeError, match="evaluation '.*' is given twice: name each evaluation once"
    ):
        report([evaluation, open_evaluation(saved)], tmp_path / "page.html")
    changed = Evaluation(evaluation.scores.assign(score=evaluation.scores["score"] / 2), "half")
    with pytest.raises(LayerscopeError, match="judged here <i> and half has two rows for model"):
        report([evaluation, changed], tmp_path / "page.html")
    done = cli("report", labelled.path, saved, tmp_path)
    assert done.status == 2
    assert done.line.startswith(
        f"{str(tmp_path)!r} is neither a run nor an evaluation: give the folder of a run"
    )
