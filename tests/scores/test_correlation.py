import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from frames import measured, scored
from typed import refused

from layerscope.scores import (
    Evaluation,
    corpus_averages,
    correlate,
    one_variant,
    open_evaluation,
    open_metrics,
)


@pytest.fixture
def noisy():
    """Eight layers, five tasks, one metric."""
    rng = np.random.default_rng(8)
    return rng.standard_normal(8), rng.standard_normal((8, 5))


def frames(x, y):
    return measured({"curvature": list(x)}), Evaluation(
        scored({f"t{i}": list(column) for i, column in enumerate(y.T)})
    )


def test_intervals_resample_tasks(noisy):
    x, y = noisy
    (row,) = correlate(
        *frames(x, y), statistics=["pearson"], bootstrap=400, seed=5
    ).itertuples()
    draws = np.random.default_rng(5).integers(0, 5, (400, 5))
    means = [np.corrcoef(x[1:], y[1:][:, draw].mean(1))[0, 1] for draw in draws]
    assert [row.low, row.high] == pytest.approx(list(np.percentile(means, [2.5, 97.5])))


def test_layers_without_a_value_are_left_out(noisy):
    x, y = noisy
    x, y = x.copy(), y.copy()
    x[4], y[6, 1] = math.nan, math.nan
    metrics, evaluation = frames(x, y)
    left = [1, 2, 3, 5, 6, 7]
    # 4 of 5 tasks are everywhere
    row = correlate(metrics, evaluation, statistics=["spearman"]).iloc[0]
    expected = scipy.stats.spearmanr(
        x[left], y[left][:, [0, 2, 3, 4]].mean(1)
    ).statistic
    assert (row["layers"], row["tasks"], row["estimate"]) == (
        6,
        4,
        pytest.approx(expected),
    )


def test_too_few_layers_are_no_correlation():
    metrics = measured({"curvature": [1.0, 2.0, 3.0, None], "lidar": [None] * 4})
    found = correlate(
        metrics,
        Evaluation(scored({"a": [0.1, 0.2, 0.4, 0.3]})),
        statistics=["spearman"],
    )
    assert found["estimate"].isna().all() and found["layers"].tolist() == [2, 0]


def test_models_are_matched_by_name_and_revision():
    scores = pd.concat([scored({"a": [0, 1, 2, 3]}), scored({"a": [0, 3, 2, 1]}, "n")])
    metrics = pd.concat(
        [
            measured({"lidar": [0, 1, 2, 3]}),
            measured({"lidar": [0, 1, 2, 3]}, "n").assign(revision=""),
        ]
    )
    found = correlate(metrics, Evaluation(scores), statistics=["pearson"])
    estimates = found.set_index("model")["estimate"].to_dict()
    assert estimates == pytest.approx({"m": 1, "n": -1})
    assert set(found["revision"]) == {"r"}
    with refused(r"no model has both metrics \(m\) and scores \(m, n\)"):
        correlate(
            measured({"lidar": [0, 1, 2, 3]}).assign(revision="s"), Evaluation(scores)
        )


def test_what_cannot_be_correlated_is_refused(noisy):
    with refused(r"'spearmann' does not exist, did you mean spearman"):
        correlate(*frames(*noisy), statistics=["spearmann"])
    with refused("the frame of metrics has no column 'value'"):
        correlate(measured({"lidar": [1.0]}).drop(columns="value"), frames(*noisy)[1])


# metric: (tasks 160M, tasks 410M, wikitext 160M, wikitext 410M), as printed to two digits
DIRECTIONS = {
    "prompt_entropy": (-0.59, -0.61, -0.79, -0.61),
    "dataset_entropy": (-0.78, -0.53, -0.55, -0.56),
    "curvature": (-0.59, -0.65, None, None),
    "infonce": (0.42, 0.53, -0.88, 0.07),
    "lidar": (-0.53, -0.38, -0.78, -0.91),
    "dime": (-0.52, -0.71, 0.55, 0.38),
}
PLACES = [
    ("tasks", "Pythia-160m"),
    ("tasks", "Pythia-410m"),
    ("wikitext", "Pythia-160m"),
    ("wikitext", "Pythia-410m"),
]


def test_published_directions(published):
    """The values that are not normalised, averaged at each layer over the data sets that have one there."""
    evaluation = open_evaluation(published / "mteb_scores.csv.gz")
    curves = one_variant(corpus_averages(open_metrics(published / "metrics.csv.gz")))
    found = correlate(curves, evaluation, statistics=["spearman"], bootstrap=0)
    found = found.set_index(["metric", "corpus", "model"])["estimate"]
    for metric, printed in DIRECTIONS.items():
        for place, rho in zip(PLACES, printed, strict=True):
            if rho is None:
                assert math.isnan(found[metric, *place])
            else:
                assert abs(found[metric, *place] - rho) <= 0.00505, (metric, place)
