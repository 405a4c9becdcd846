import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from frames import scored, shipped
from typed import refused

import layerscope
from layerscope.scores import Evaluation, open_evaluation
from layerscope.scores.evaluation import ModelOrigin, add_origin, read_origins
from layerscope.scores.opening import merged
from layerscope.scores.probe_results import VALUES, ProbeScores


def test_summary_by_hand(evaluation):
    (row,) = evaluation.summary().to_dict(orient="records")
    expected = {
        "model": "m",
        "revision": "r",
        "first": 0.2,
        "mean_over_layers": (0.2 + 0.5 + 0.6 + 0.4) / 4,
        "best": 0.6,
        "best_layer": 2,
        "last": 0.4,
        "oracle": (0.6 + 0.7) / 2,
        "first_layer": 0,
        "last_layer": 3,
        "layers": 4,
        "tasks": 2,
        "missing": 0,
        "left_out": [],
    }
    for name, value in expected.items():
        assert row[name] == (
            pytest.approx(value) if isinstance(value, float) else value
        ), name
    assert math.isnan(row["baseline"])


def test_layer_0_is_no_candidate():
    (row,) = (
        Evaluation(scored({"a": [0.9, 0.2, 0.4], "b": [0.9, 0.3, 0.1]}))
        .summary()
        .to_dict(orient="records")
    )
    assert (row["first"], row["best"], row["best_layer"], row["oracle"]) == (
        0.9,
        0.25,
        1,
        pytest.approx(0.35),
    )
    (row,) = Evaluation(scored({"a": [0.9]})).summary().to_dict(orient="records")
    assert pd.isna(row["best"]) and pd.isna(row["best_layer"])
    tie = Evaluation(scored({"a": [0.1, 0.4, 0.4]})).summary()
    assert tie["best_layer"].item() == 1


def tasks_at(counts):
    """Return scores of as many of 32 tasks at each layer; the score is layer + task/100."""
    rows = {
        f"t{task:02}": [
            layer + task / 100 if task < n else None for layer, n in enumerate(counts)
        ]
        for task in range(32)
    }
    return Evaluation(scored(rows))


def test_layers_below_25_of_32_tasks_are_left_out_and_named():
    (row,) = tasks_at([32, 24, 25, 32]).summary().to_dict(orient="records")
    assert row["left_out"] == [1]
    assert (row["layers"], row["tasks"], row["missing"]) == (3, 25, 8 + 7)
    average = np.mean([task / 100 for task in range(25)])
    assert row["first"] == pytest.approx(0 + average) and row["last"] == pytest.approx(
        3 + average
    )
    assert row["mean_over_layers"] == pytest.approx((0 + 2 + 3) / 3 + average)


def test_a_summary_says_which_layer_its_last_is():
    (row,) = tasks_at([32, 32, 3]).summary().to_dict(orient="records")
    assert (row["last_layer"], row["left_out"]) == (2, [2]) and math.isnan(
        row["last"]
    ), "never that of layer 1"


def test_nothing_left_is_an_error():
    with refused("no layer and task are left"):
        tasks_at([20, 3]).summary()


def test_table_of_several_models():
    both = Evaluation(
        pd.concat(
            [
                scored({"a": [0.1, 0.2]}),
                scored({"a": [0.3, None], "b": [0.5, 0.6]}, "n"),
            ]
        )
    )
    table = both.table()
    assert table.index.names == ["model", "revision", "layer"]
    assert table.loc[("n", "r", 0), "a"] == 0.3 and math.isnan(
        table.loc[("m", "r", 1), "b"]
    )
    assert both.table("n").shape == (2, 2) and both.table(
        model="m"
    ).columns.tolist() == ["a"]
    assert both.missing == 1
    with refused(
        r"model 'nn' is not in this evaluation, did you mean n\? \(it has m, n\)"
    ):
        both.table("nn")


def test_sites_and_poolings_are_apart():
    both = Evaluation(
        pd.concat(
            [
                scored({"a": [0.1, 0.2]}, site="raw", pooling="mean"),
                scored({"a": [0.3, 0.4]}, site="normed", pooling="mean"),
            ]
        )
    )
    assert both.table().index.names == ["model", "revision", "site", "layer"]
    assert both.table(site="normed").loc[1, "a"] == 0.4
    assert both.summary()[["site", "last"]].to_dict(orient="list") == {
        "site": ["raw", "normed"],
        "last": [0.2, 0.4],
    }


def test_where_a_model_is_stands_beside_its_scores_and_keeps_its_tokens(tmp_path):
    first, second = ModelOrigin("a", 3, tokens="t"), ModelOrigin("b", 4)
    for origin in (first, second):
        add_origin(tmp_path, "m", origin)
    add_origin(tmp_path, "n", second)
    found = read_origins(tmp_path)
    assert found == {"m": ModelOrigin("b", 4, tokens="t"), "n": second}


def test_scores_of_a_task_are_kept_as_long_as_its_facts_are_the_same(tmp_path):
    facts = {"model": "m", "revision": "r", "task": "topics", "digest": "1"}
    values = dict.fromkeys((*VALUES, "strengths", "right"), None) | {"score": 0.5}
    ProbeScores(tmp_path, facts).add("layer", (2, "raw", "mean"), values)
    again, other = (
        ProbeScores(tmp_path, facts),
        ProbeScores(tmp_path, facts | {"digest": "2"}),
    )
    assert again.has("layer", (2, "raw", "mean")) and not again.has(
        "layer", (1, "raw", "mean")
    )
    assert again.rows[0]["score"] == 0.5 and other.rows == []


def test_scores_of_several_folders_are_one_table_whose_rows_are_numbered():
    one, two = (Evaluation(scored({task: [0.1, 0.2]}), task) for task in "ab")
    two.failed["c"] = "no data"
    both = merged([one, two])
    assert both.scores.index.tolist() == [0, 1, 2, 3] and both.source == "a and b"
    assert list(both.table()) == ["a", "b"] and both.failed == two.failed


def test_baseline_is_no_layer():
    layers = scored({"a": [0.1, 0.2], "b": [0.3, 0.4]})
    found = Evaluation(pd.concat([layers, shipped(a=0.8, b=0.6)]))
    assert found.table().index.tolist() == [0, 1]
    assert found.summary()["baseline"].tolist() == pytest.approx([0.7])
    assert found.baseline().loc[("m", "r")].to_dict() == {"a": 0.8, "b": 0.6}
    assert found.scores["kind"].tolist() == ["layer"] * 4 + ["baseline"] * 2
    assert (
        found.scores["layer"].dtype == "Int64"
        and found.scores["layer"].isna().sum() == 2
    )


@pytest.mark.parametrize(
    "frame, line",
    [
        (scored({"a": [0.1]}).drop(columns="score"), "has no column 'score'"),
        (scored({"a": [None, None]}), "has no score of any layer"),
        (scored({"a": [0.1, math.inf]}), "the score of m on a is infinite"),
        (
            pd.concat([scored({"a": [0.1]})] * 2),
            "has two rows for model m, revision r, layer 0, task a",
        ),
        (
            scored({"a": [0.1]}).assign(layer=-1),
            "has the layer -1: layers count from 0",
        ),
        (
            scored({"a": [0.1, 0.2]}).assign(kind=["layer", "baseline"]),
            "a row of kind 'baseline' has the layer 1",
        ),
    ],
)
def test_frames_that_are_no_scores(frame, line):
    with refused(line):
        Evaluation(frame)


def test_published_scores(published):
    found = layerscope.open_evaluation(published / "mteb_scores.csv.gz")
    frame = found.summary().set_index("model")
    names = ["first", "mean_over_layers", "best", "last", "oracle"]
    assert (100 * frame.loc["Pythia-410m", names]).astype(float).round(1).tolist() == [
        45.0,
        49.2,
        51.9,
        46.8,
        53.2,
    ]
    assert frame["best_layer"].to_dict() == {"Pythia-160m": 8, "Pythia-410m": 17}
    assert frame["layers"].to_dict() == {"Pythia-160m": 13, "Pythia-410m": 25}
    assert set(frame["tasks"]) == {32} and found.missing == 0
    assert found.table("Pythia-410m").shape == (25, 32)


def test_save_and_open(evaluation, tmp_path):
    path = evaluation.save(tmp_path / "new" / "scores")
    again = open_evaluation(path)
    pd.testing.assert_frame_equal(again.scores, evaluation.scores)
    assert again.source == evaluation.source


def test_a_save_that_was_killed_between_its_files_is_refused(
    evaluation, tmp_path, monkeypatch
):
    path = evaluation.save(tmp_path / "scores")
    newer = Evaluation(scored({"a": [0.9]}))
    left = [1]

    def dies(self, target):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return os.replace(self, target)

    with monkeypatch.context() as killing, pytest.raises(KeyboardInterrupt):
        killing.setattr(Path, "replace", dies)
        newer.save(path)
    with refused("has changed since it was written"):
        open_evaluation(path)
    newer.save(path)
    pd.testing.assert_frame_equal(open_evaluation(path).scores, newer.scores)
