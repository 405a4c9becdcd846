"""A choice as it is printed and as JSON, and the command that prints it."""

import json
import re
import shlex

import pandas as pd
import pytest
from frames import scored, shipped
from typed import shown

import layerscope
from layerscope.scores import Evaluation
from layerscope.selection.document import answer, ship


@pytest.fixture
def evaluation():
    rows = [
        scored(
            {
                "x": [0.9, 0.5, 0.70, 0.6],
                "y": [0.2, 0.3, 0.52, 0.4],
                "z": [0.1, 0.1, 0.31, 0.2],
            },
            "a[b]c",
        )
    ]
    rows.append(shipped("a[b]c", x=0.65, y=0.45, z=0.25))
    return Evaluation(pd.concat(rows))


def test_the_first_line_is_the_answer_and_the_last_the_command(evaluation):
    found = layerscope.select(evaluation, cost=False)
    lines = shown(found).splitlines()
    # .51 against .45; by task +.05 +.07 +.06: error .0058
    assert (
        lines[0]
        == "layer 2 of 3 · 51.0 % (3 tasks) · +6.0 ±0.6 points expected against the model as shipped"
    )
    assert shlex.split(lines[-1]) == [
        "next:",
        "layerscope",
        "truncate",
        "a[b]c",
        "--layer",
        "2",
        "--out",
        "a[b]c-layer2",
    ]
    row = next(line for line in lines if re.match(r"\s+2 ", line))
    assert "51.0" in row and "+6.0 ±0.6" in row and "◂" in row


def test_the_command_prints_json_alone(evaluation, cli, tmp_path):
    evaluation.save(tmp_path / "scores")
    done = cli("select", tmp_path / "scores", "--no-cost", "--json")
    told = json.loads(done.out)
    assert (
        done.status == 0 and told["layer"] == 2 and told["gain"] == pytest.approx(0.06)
    )
    assert [row["layer"] for row in told["layers"]] == [0, 1, 2, 3] and told["chosen"][
        "score"
    ] == pytest.approx(0.51)


@pytest.mark.parametrize(
    "options, line",
    [
        (["--cost-model", "m"], "is gone"),
        (
            ["--rule", "lidar"],
            "rule 'lidar' does not exist: choose best-if-clear, best",
        ),
        (["--model", "b"], "model 'b' is not in this evaluation"),
    ],
)
def test_a_mistake_is_one_line(evaluation, refusal, tmp_path, options, line):
    scores = evaluation.save(tmp_path / "scores")
    assert line in refusal("select", scores, *options)


def test_a_choice_has_a_page_and_no_figures(evaluation, cli, tmp_path):
    layerscope.select(evaluation, cost=False, out=tmp_path / "choice")
    done = cli("report", tmp_path / "choice", "--figures", tmp_path / "figures")
    assert done.status == 2 and done.line.startswith(
        "the given selections have no plot, so there is nothing to draw"
    )
    assert (tmp_path / "choice" / "report.html").is_file() and not (
        tmp_path / "figures"
    ).exists()


def test_the_command_ships_the_pooling_that_was_scored():
    rows = scored({"x": [0.1, 0.4, 0.2]}, pooling="cls")
    found = layerscope.select(Evaluation(rows), cost=False)
    assert (
        "--layer 1 --format sentence-transformers --pooling cls --out" in ship(found)[0]
    )


def test_no_layer_is_shipped_where_the_model_is_best_as_it_is(evaluation):
    scores = evaluation.scores.assign(
        score=evaluation.scores["score"].where(evaluation.scores["layer"].notna(), 0.99)
    )
    found = layerscope.select(Evaluation(scores), cost=False)
    assert answer(found) == "the model as shipped · 99.0 % (3 tasks)"
    assert ship(found) == (
        "",
        "nothing to truncate: the model as shipped is the choice",
    )


def test_a_larger_number_than_the_best_has_its_reason(evaluation):
    first = (evaluation.scores["layer"] == 0).fillna(False).astype(bool)
    scores = evaluation.scores.assign(
        score=evaluation.scores["score"].where(~first, 0.9)
    )
    found = layerscope.select(Evaluation(scores), cost=False)
    text = shown(found, 200).splitlines()
    assert text[0].endswith(
        "· layer 0 has 90.0 % and is not a candidate: it is before the first block"
    )


def test_the_first_line_warns_of_two_tasks(evaluation):
    two = layerscope.select(evaluation, tasks={"x": 1, "y": 1}, cost=False)
    assert (
        answer(two)
        == "layer 2 of 3 · 61.0 % (2 tasks, which decide little) · +6.0 points against the model as shipped"
    )
