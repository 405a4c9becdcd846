"""The command `scores`: tables, files, and what it refuses."""

import json
from pathlib import Path

import pandas as pd
import pytest
from frames import LONG, M, N, placed, scored, shipped
from typed import cli, flagged

from layerscope.scores import Evaluation
from layerscope.scores.naming import SHIPPED
from layerscope.scores.tables import wide_csv

__all__ = ["cli"]


@pytest.fixture
def files(two_models: Evaluation, lidar: pd.DataFrame, tmp_path: Path) -> tuple[Path, Path]:
    columns = ["model", "revision", "layer", "task", "main_score"]
    scores = two_models.scores.rename(columns={"score": "main_score"})[columns]
    scores.to_csv(tmp_path / "scores.csv", index=False)
    lidar.assign(normalization="raw").to_csv(tmp_path / "metrics.csv", index=False)
    return tmp_path / "scores.csv", tmp_path / "metrics.csv"


def test_command(cli, files, tmp_path):
    scores, metrics = files
    done = cli("scores", scores, "--metrics", metrics, "--min-share", "1/2", "--bootstrap", 20)
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
        json.loads(cli("scores", tmp_path / "saved", "--json").out)["summary"] == found["summary"]
    )


def test_layers_by_task_as_csv(cli, files, tmp_path, two_models):
    scores, _ = files
    done = cli("scores", scores, "--csv", tmp_path / "wide.csv")
    assert done.status == 0 and done.err == f"table: {tmp_path}/wide.csv\n"
    found = pd.read_csv(tmp_path / "wide.csv", float_precision="round_trip")
    assert list(found) == ["model", "revision", "site", "pooling", "layer", "a", "b", "average"]
    assert list(found["a"]) == [*M, *N] and list(found["layer"]) == [0, 1, 2, 3] * 2
    assert pd.isna(found["b"][7]) and found["average"][2] == 0.8
    shipped_too = Evaluation(pd.concat([scored({"layer": M}), shipped(layer=0.5)]))
    assert wide_csv(shipped_too).splitlines()[-1] == "m,r,,,as shipped,0.5,0.5"
    done = cli("scores", scores, "--csv", tmp_path / "wide.txt")
    line = f"--csv '{tmp_path}/wide.txt' is not a valid name for a table: let it end in .csv"
    assert (done.line, done.out) == (line, "")


def test_the_csv_has_a_model_as_shipped_once_after_its_layers():
    places = [
        placed([1, 2], site, pooling) for site in ("raw", "normed") for pooling in ("mean", "last")
    ]
    rows = [*places, shipped(a=0.5).assign(model=LONG), placed([1], "raw", "mean", "n")]
    found = wide_csv(Evaluation(pd.concat(rows))).splitlines()
    assert found[8].startswith(f"{LONG},r,normed,last,2,") and found[10].startswith(
        "n,r,raw,mean,1,"
    )
    assert found[9] == f"{LONG},r,,,as shipped,0.5,,"
    assert sum(SHIPPED in line for line in found) == 1
    other = placed([1, 2], "raw", "cls").query("task == 'a'")
    found = wide_csv(
        Evaluation(pd.concat([*places, other, shipped(a=0.5, b=0.75).assign(model=LONG)]))
    ).splitlines()
    # averages of other tasks compare with no one number
    assert found[-1] == f"{LONG},r,,,as shipped,0.5,0.75,"
    found = wide_csv(
        Evaluation(pd.concat([*places, shipped(a=0.5, b=0.75).assign(model=LONG)]))
    ).splitlines()
    assert found[-1] == f"{LONG},r,,,as shipped,0.5,0.75,0.625"


BOTH = ["{scores}", "--metrics", "{metrics}"]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "layerscope scores needs scores, such as layerscope scores scores.csv"),
        (["{scores}x"], "evaluation '{scores}x' does not exist, did you mean scores.csv?"),
        (["{scores}", "--metrics", "{scores}"], "{scores} has no column 'dataset'"),
        (
            [*BOTH, "--variant", "rew"],
            "variant 'rew' is not among these metrics, did you mean raw?",
        ),
        (
            [*BOTH, "--save-rules", "x"],
            "option --save-rules is gone: rules are not fitted any more; --metrics prints",
        ),
    ],
)
def test_wrong_commands(cli, files, options, line):
    scores, metrics = files
    done = cli("scores", *(str(o).format(scores=scores, metrics=metrics) for o in options))
    assert done.status == 2 and done.out == ""
    assert done.line.startswith(flagged(line.format(scores=scores, metrics=metrics), *options))


def test_what_to_type_next_names_the_scores_and_the_best_model(cli, files):
    scores, _ = files
    out = cli("scores", scores).out
    assert f"next: layerscope select {scores} --model n\n      layerscope report {scores}\n" in out
    assert Evaluation(scored({"a": M})).document().commands == ()
