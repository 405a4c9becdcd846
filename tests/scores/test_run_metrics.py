"""Metrics of a run against scores of the same model."""

import numpy as np
import pytest
import tiny
from frames import scored

import layerscope
from layerscope.scores import Evaluation, correlate, open_metrics


@pytest.fixture(scope="module")
def run(bert, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    metrics = ["curvature", "prompt_entropy", "cka"]
    return layerscope.profile(bert, tiny.texts(30), out=out, metrics=metrics, views=0)


def test_metrics_of_one_layer_are_taken_and_pairs_are_not(run):
    frame = open_metrics(run)
    assert set(frame["metric"]) == {"curvature", "prompt_entropy"} and set(
        frame["model"]
    ) == {"tiny-bert"}
    curvature = frame[frame["metric"] == "curvature"].set_index("layer")["value"]
    assert curvature.to_dict() == run.metric("curvature").to_dict()
    assert open_metrics(run.path).equals(frame)


def test_a_run_is_correlated_with_scores_of_its_model(run, cli, tmp_path):
    curvature = run.metric("curvature").to_numpy()
    evaluation = Evaluation(scored({"a": list(-curvature)}, "tiny-bert"))
    found = correlate(run, evaluation, statistics=["pearson"], bootstrap=0)
    found = found.set_index("metric")["estimate"]
    assert found["curvature"] == pytest.approx(-1)
    entropy = run.metric("prompt_entropy").to_numpy()
    expected = np.corrcoef(entropy[1:], -curvature[1:])[0, 1]
    assert found["prompt_entropy"] == pytest.approx(expected)
    printed = cli("scores", evaluation.save(tmp_path / "scores"), "--metrics", run.path)
    assert printed.status == 0 and "prompt_entropy (alpha=1" in printed.out
