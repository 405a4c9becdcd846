"""Mixes of layers as rows of an evaluation: scored, kept, resumed, shown; of mteb those that need no learning."""

import numpy as np
import pandas as pd
import pytest
import tiny
from evaluation.references import states_of
from scipy.stats import spearmanr
from typed import refused

import layerscope
from layerscope.probes import linear_probe

FIXED = ["last 2", "first+last"]
LEARNED = ["one layer", *FIXED, "scalar mix"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "topics.csv"
    labels = np.random.default_rng(0).integers(0, 2, 60)
    texts = [
        f"w{1 + label} {text} w{9 + i}"
        for i, (label, text) in enumerate(zip(labels, tiny.texts(60), strict=True))
    ]
    pd.DataFrame({"text": texts, "label": labels}).to_csv(file, index=False)
    return file


def test_probes_score_mixes_and_a_second_call_only_what_is_missing(
    bert, data, tmp_path
):
    out, tasks = tmp_path / "out", [f"linear-probe:{data}", f"knn-probe:{data}"]
    before = layerscope.evaluate(bert, tasks, out, pooling="mean")
    assert before.scores["mix"].isna().all()
    found = layerscope.evaluate(bert, tasks, out, pooling="mean", mixes=True)
    rows = found.scores[found.scores["kind"] == "mix"]
    names = {task: list(part["mix"]) for task, part in rows.groupby("task")}
    assert names == {"topics (linear probe)": LEARNED}, "a kNN probe has no mixes"
    frame = pd.read_csv(data)
    states = states_of(bert, list(frame["text"]))
    wanted = linear_probe(
        (states[-1] + states[-2]) / 2, frame["label"].to_numpy().astype(str)
    )
    linear = rows[rows["task"] == "topics (linear probe)"].set_index("mix")
    assert linear.loc["last 2", "score"] == pytest.approx(wanted.mean)
    depth = len(states) - 1
    assert linear.loc["last 2", "weights"] == f"{depth - 1},{depth}"
    assert linear["gain"].isna().tolist() == [True] + [False] * 3
    files = sorted(out.glob("probes/*/*.json"))
    kept = [path.read_bytes() for path in files]
    layerscope.evaluate(bert, tasks, out, pooling="mean", mixes=True)
    assert kept == [path.read_bytes() for path in files]

    layers = found.scores["kind"] == "layer"
    pd.testing.assert_frame_equal(
        found.scores[layers].reset_index(drop=True),
        before.scores[before.scores["kind"] == "layer"].reset_index(drop=True),
    )


def test_mixes_stand_beside_layers_in_tables_files_and_what_is_saved(
    bert, data, tmp_path, cli
):
    out = tmp_path / "out"
    shown = cli(
        *f"evaluate {bert} --data linear-probe:{data} --mixes --out {out} --csv {tmp_path}/t.csv".split(),
    )
    assert shown.status == 0
    assert "Mixes of layers" in shown.out
    assert "scalar mix" in shown.out
    table = pd.read_csv(tmp_path / "t.csv", dtype=str)
    assert set(LEARNED) < set(table["layer"])
    found = layerscope.open_evaluation(out)
    again = layerscope.open_evaluation(found.save(tmp_path / "saved"))
    pd.testing.assert_frame_equal(again.scores, found.scores)
    assert list(found.table().index) == [0, 1, 2, 3], "layers alone"
    texts = found.document().parts[0].texts
    assert any("mix of layers" in text for text in texts)


def test_mteb_judges_the_mixes_that_need_no_learning(bert, tmp_path):
    one, two = tiny.texts(16)[:8], tiny.texts(16)[8:]
    scores = np.random.default_rng(1).random(8).round(3)
    file = tmp_path / "pairs.csv"
    pd.DataFrame({"text_a": one, "text_b": two, "score": scores}).to_csv(
        file, index=False
    )
    found = layerscope.evaluate(bert, f"sts:{file}", pooling="mean", mixes=True)
    rows = found.scores[found.scores["kind"] == "mix"].set_index("mix")
    assert list(rows.index) == sorted(FIXED)
    mixed = states_of(bert, one + two)[-2:].mean(0)
    unit = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
    cosines = (unit[:8] * unit[8:]).sum(1)
    assert rows.loc["last 2", "score"] == pytest.approx(
        spearmanr(cosines, scores).statistic, abs=1e-6
    )
    assert rows["gain"].isna().all(), "without samples there is no paired error"


def test_what_cannot_be_mixed(bert, data):
    for options, line in (
        ({"layers": [2]}, "layer 2 alone cannot be mixed: give several `layers`"),
        (
            {"shift": data},
            "`mixes` are not judged under a `shift`: leave one of them out",
        ),
    ):
        with refused(line):
            layerscope.evaluate(bert, f"linear-probe:{data}", mixes=True, **options)
