"""A choice by labels of a run and by tasks of an evaluation: what it says is what independent counts give."""

import math
import shlex

import numpy as np
import pandas as pd
import pytest
from frames import scored, shipped
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize
from typed import refused

import layerscope
from layerscope.core.labels import Judged
from layerscope.core.progress import Reporter
from layerscope.scores import Evaluation
from layerscope.selection import cost_model, pipeline
from layerscope.selection.document import ship


def quick(given, **options):
    return layerscope.select(given, **{"cost": False} | options)


@pytest.fixture(scope="module")
def of_run(labelled):
    return quick(labelled)


@pytest.fixture(scope="module")
def labels(labelled):
    originals = labelled.folder.plan.query("view == 0")
    return originals.sort_values("sample")["label"].tolist()


def test_scores_of_a_run_are_those_of_its_probe(labelled, of_run):
    found = of_run
    probe = labelled.metric("linear_probe")
    assert [row.score for row in found.layers] == pytest.approx(probe.tolist())
    assert found.baseline.score == probe[labelled.depth] and found.site == "normed"
    table = labelled.table()
    errors = table.loc[table["metric"] == "linear_probe", "stderr"]
    assert [row.stderr for row in found.layers] == pytest.approx(errors.tolist())


def test_difference_of_a_run_is_paired_by_sample(labelled, labels, of_run):
    states = [labelled.pooled(layer, "normed") for layer in (1, 3)]
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    classifier = make_pipeline(
        StandardScaler(), LogisticRegression(max_iter=1000, tol=1e-3)
    )
    one, last = (
        cross_val_predict(classifier, normalize(rows.astype(float)), labels, cv=folds)
        == labels
        for rows in states
    )
    apart = one.astype(float) - last
    row = of_run.layers[1]
    assert row.difference == pytest.approx(apart.mean())
    assert row.difference_error == pytest.approx(
        apart.std(ddof=1) / math.sqrt(len(apart))
    )


def test_labels_may_be_given(bare, labels, of_run):
    assert quick(bare, labels=labels).layers == of_run.layers
    with refused("one label for each of the 60 samples"):
        quick(bare, labels=labels[:7])
    with refused("two classes with 5 samples each: label more, or leave them out"):
        quick(bare, labels=["a"] * 60)


def test_an_evaluation_by_tasks_and_its_folder(tmp_path):
    tasks = {
        "x": [0.9, 0.5, 0.70, 0.6],
        "y": [0.9, 0.3, 0.52, 0.4],
        "z": [0.9, 0.1, 0.31, 0.2],
    }
    rows = pd.concat([scored(tasks), shipped(x=0.65, y=0.45, z=0.25)])
    evaluation = Evaluation(rows)
    found = quick(evaluation)
    assert (found.layer, found.best, found.rule) == (2, 2, "best-if-clear")
    assert found.gain == pytest.approx(np.mean([0.05, 0.07, 0.06]))
    assert found.gain_error == pytest.approx(
        np.std([0.05, 0.07, 0.06], ddof=1) / math.sqrt(3)
    )
    evaluation.save(tmp_path / "saved")
    assert quick(str(tmp_path / "saved")) == found
    assert quick(evaluation, rule="best", max_loss=20).layer == 2


def test_loss_is_in_percent_points_of_shares_and_called_certain_or_not():
    tasks = {
        "x": [0, 0.48, 0.489, 0.499, 0.5],
        "y": [0, 0.481, 0.493, 0.499, 0.5],
        "z": [0, 0.48, 0.491, 0.499, 0.5],
    }
    evaluation = Evaluation(scored(tasks))
    assert quick(evaluation, max_loss=1.0).layer == 2  # 0.9 points on average
    percent = evaluation.scores.assign(score=evaluation.scores["score"] * 100)
    assert quick(Evaluation(percent), max_loss=1.0).layer == 2
    assert quick(evaluation, max_loss=0).as_shipped


def test_published_scores_of_one_of_two_models(published):
    scores = published / "mteb_scores.csv.gz"
    found = layerscope.select(scores, model="Pythia-410m")
    assert (found.best, found.layer) == (17, 17) and found.gain == pytest.approx(
        0.0510, abs=5e-5
    )
    assert found.baseline_name == "the last layer" and any(
        "no costs" in note for note in found.notes
    )
    with refused(r"\(Pythia-160m, Pythia-410m\): name one, `model='Pythia-160m'`"):
        layerscope.select(scores)


def test_normed_is_what_is_chosen_among_and_raw_cannot_be_truncated():
    rows = [
        scored({"x": [0.1, 0.4, 0.2], "y": [0.1, 0.4, 0.2]}, site="raw"),
        scored({"x": [0.1, 0.2, 0.3], "y": [0.1, 0.2, 0.3]}, site="normed"),
    ]
    evaluation = Evaluation(pd.concat(rows))
    assert quick(evaluation).site == "normed" and quick(evaluation).layer == 2
    raw = quick(evaluation, site="raw")
    assert raw.layer == 1 and raw.raw_only and not raw.document().commands


def test_costs_by_depth_and_bounds_on_them(labelled, llama, monkeypatch):
    for bound in ("FEWEST", "MOST"):  # how fast they are is compared here
        monkeypatch.setattr(f"layerscope.truncation.costs.{bound}", 9)
    source = cost_model.open_model(labelled, "cpu")
    costs = cost_model.costs_of(source, labelled.layers[1:], Reporter())
    monkeypatch.setattr(pipeline, "costs_of", lambda *_: costs)
    found = layerscope.select(labelled)
    weights = [row.parameters for row in found.layers[1:]]
    from transformers import AutoModelForCausalLM

    whole = AutoModelForCausalLM.from_pretrained(llama)
    block = sum(p.numel() for p in whole.model.layers[0].parameters())
    assert weights[-1] == whole.num_parameters() == found.baseline.parameters
    assert (
        np.diff(weights).tolist() == [block, block]
        and found.layers[0].parameters is None
    )
    assert found.layers[1].megabytes == pytest.approx(weights[0] * 4 / 1e6)
    assert all(row.milliseconds > 0 for row in found.layers[1:]) and found.measured
    two = found.layers[2].megabytes
    assert layerscope.select(labelled, max_mb=two, rule="best").layer <= 2
    least = rf"is within 0.001 MB: they take .* and {weights[0] * 4e-6:.4g} MB or more"
    with refused(least):
        layerscope.select(labelled, max_mb=0.001)
    fast = layerscope.select(labelled, min_speedup=1.0001, rule="best")
    assert (
        fast.layer < 3
        and fast.chosen.speedup > 1
        and "at least 1.0001× as fast" in fast.why
    )
    scores = Evaluation(scored({"a": [0.1, 0.2, 0.4, 0.3]}))
    with refused("itself is not on this machine"):
        layerscope.select(scores, max_mb=0.001)


@pytest.mark.parametrize(
    "options, line",
    [
        ({"max_ms": 3}, "needs measured costs: do not switch them off"),
        ({"pooling": "cls"}, "pooling 'cls' is not in this run"),
        ({"site": "raw"}, "`site` applies only to evaluations"),
        ({"model": "other"}, "`model` applies only to evaluations"),
        ({"tasks": ["x"]}, "`tasks` applies only to evaluations"),
    ],
)
def test_wrong_options(labelled, options, line):
    with refused() as error:
        quick(labelled, **options)
    assert line in str(error.value)


def test_the_gain_is_of_tasks_that_did_not_choose():
    # without x layer 2 leads, without y or z layer 1: each task is judged at the layer that the
    # other two choose
    tasks = {"x": [0, 0.9, 0.5, 0.4], "y": [0, 0.4, 0.6, 0.4], "z": [0, 0.4, 0.6, 0.4]}
    rows = pd.concat([scored(tasks), shipped(x=0.4, y=0.4, z=0.4)])
    found = quick(Evaluation(rows), rule="best")
    assert found.layer == 1 and found.layers[1].difference == pytest.approx(0.5 / 3)
    assert found.gain == found.apart.difference == pytest.approx((0.1 + 0 + 0) / 3)
    assert (found.apart.unit, found.apart.blocks) == ("task", 3)
    assert repr(found) == "Selection('m': layer 1 of 3 by best, gain +0.03333 ±0.033)"


def test_too_little_chooses_nothing(bare):
    few = ["a"] * 20 + ["b"] * 20 + [f"rare {i}" for i in range(20)]
    found = quick(bare, labels=few)
    assert found.as_shipped and found.rule == "none"
    assert found.lacking == (
        "only 40 samples, 2 classes; 20 skipped, in classes of fewer than 5: 50 judged samples are needed, label more"
    )
    most = "only 60 samples, 3 classes; 61 skipped, in classes of fewer than 5: more than half cannot be judged, "
    assert Judged(60, 3, 61).lacking == f"{most}merge rare classes"
    # only where the data have more
    assert (
        Judged(60, 3, 61, sampled=True).lacking
        == f"{most}take more `samples` or merge rare classes"
    )
    assert not Judged(60, 3, 60).lacking and Judged.of("aaaaabbbbbcc") == Judged(
        10, 2, 2
    )


def test_the_command_that_is_printed_writes_the_model_that_was_scored(
    bare, cli, tmp_path, monkeypatch
):
    from sentence_transformers import SentenceTransformer

    monkeypatch.chdir(tmp_path)
    labels = np.random.default_rng(0).integers(0, 2, 60).tolist()
    found = next(
        f
        for f in (quick(bare, labels=labels, max_loss=m) for m in (60, 100))
        if not f.as_shipped
    )
    words = shlex.split(ship(found)[0])
    assert words[-6:-2] == [
        "--format",
        "sentence-transformers",
        "--pooling",
        str(found.pooling),
    ]
    assert cli(*words[1:]).status == 0
    texts = list(pd.read_csv(bare.info["data"]["source"])["text"])
    own = SentenceTransformer(words[-1], device="cpu").encode(texts)
    scored_states = bare.pooled(found.layer, "normed", found.pooling)
    assert np.allclose(own, scored_states, atol=1e-4)


def test_the_tasks_that_count_are_named_by_a_beginning_that_no_other_has():
    rows = {
        "trec (linear probe)": [0.1, 0.3, 0.7, 0.4],
        "STS12": [0.1, 0.7, 0.3, 0.4],
        "STS13": [0.1] * 4,
    }
    evaluation = Evaluation(scored(rows))
    for tasks, best in ((["TREC"], 2), (["STS12", "STS13"], 1)):
        assert quick(evaluation, rule="best", tasks=tasks).layer == best
    for task in ("STS", "w"):
        with refused(f"task '{task}' is not in this evaluation"):
            quick(evaluation, tasks=[task])
