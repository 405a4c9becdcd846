"""The command `scores`: tables, files, and what it refuses."""

import json

import pandas as pd
import pytest
from frames import M, N, scored, shipped

from layerscope.scores import Evaluation
from layerscope.scores.tables import wide_csv


@pytest.fixture
def files(two_models, lidar, tmp_path):
    columns = ["model", "revision", "layer", "task", "main_score"]
    scores = two_models.scores.rename(columns={"score": "main_score"})[columns]
    scores.to_csv(tmp_path / "scores.csv", index=False)
    lidar.assign(normalization="raw").to_csv(tmp_path / "metrics.csv", index=False)
    return tmp_path / "scores.csv", tmp_path / "metrics.csv"


def test_command(cli, files, tmp_path):
    scores, metrics = files
    done = cli("scores", scores, "--metrics", metrics)
    assert done.status == 0 and done.err == ""
    for word in (
        "Scores by layer",
        "Metrics and scores by layer",
        "Rules without labels",
        "minimum lidar",
    ):
        assert word in done.out
    done = cli("scores", scores, "--save", tmp_path / "saved", "--json")
    found = json.loads(done.out)
    assert (
        found["summary"][0]["best_layer"] == 2
        and found["rules"] == []
        and done.err == f"saved: {tmp_path}/saved\n"
    )
    assert (
        json.loads(cli("scores", tmp_path / "saved", "--json").out)["summary"]
        == found["summary"]
    )


def test_layers_by_task_as_csv(cli, files, tmp_path, two_models):
    scores, _ = files
    done = cli("scores", scores, "--csv", tmp_path / "wide.csv")
    assert done.status == 0 and done.err == f"table: {tmp_path}/wide.csv\n"
    found = pd.read_csv(tmp_path / "wide.csv", float_precision="round_trip")
    assert list(found) == [
        "model",
        "revision",
        "site",
        "pooling",
        "layer",
        "average",
        "a",
        "b",
    ]
    assert list(found["a"]) == [*M, *N] and list(found["layer"]) == [0, 1, 2, 3] * 2
    assert (
        pd.isna(found["b"][7])
        and found["average"][2] == 0.8
        and pd.isna(found["average"][7])
    )
    shipped_too = Evaluation(pd.concat([scored({"a": M}), shipped(a=0.5)]))
    assert wide_csv(shipped_too).splitlines()[-1] == "m,r,,,as shipped,0.5,0.5"
    done = cli("scores", scores, "--csv", tmp_path / "wide.txt")
    line = f"--csv '{tmp_path}/wide.txt' is not a valid name for a table: let it end in .csv"
    assert (done.line, done.out) == (line, "")


def test_a_command_without_scores(refusal):
    assert refusal("scores").startswith("layerscope scores needs SCORES: ")
