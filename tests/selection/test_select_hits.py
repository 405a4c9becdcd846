"""`select` on an evaluation of one or two tasks pairs layers over the samples that the evaluation kept."""

from base64 import b64encode

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from test_select_scores import quick

import layerscope

LAYERS = (0, 1, 2, 3, None)


def hits_of(shares, n, seed):
    """Which of n samples are right at layers 0 to 3, much alike, and in the last column at the model as shipped."""
    rng = np.random.default_rng(seed)
    ease = rng.random((n, 1)) + 0.15 * rng.standard_normal((n, 4))
    right = stats.rankdata(ease, axis=0) / n <= np.array(shares)
    return np.hstack([right, right[:, -1:]])


def evaluation(*tasks, kept=True):
    rows = []
    for number, hits in enumerate(tasks):
        for column, layer in enumerate(LAYERS):
            right, mean = hits[:, column], hits[:, column].mean()
            where = (
                {"site": "raw", "pooling": "mean"}
                if layer is not None
                else {"site": None, "pooling": None}
            )
            about = {
                "model": "m",
                "kind": "baseline" if layer is None else "layer",
                "layer": layer,
                "task": f"t{number}",
            }
            score = {
                "score": mean,
                "stderr": (mean * (1 - mean) / len(right)) ** 0.5,
                "n": len(right),
            }
            packed = b64encode(np.packbits(right).tobytes()).decode() if kept else None
            rows.append(about | where | score | {"right": packed})
    return layerscope.Evaluation(pd.DataFrame(rows).astype({"layer": "Int64"}))


def test_one_task_is_paired_over_its_samples():
    hits = hits_of((0.5, 0.6, 0.75, 0.7), 600, 0)
    found, unpaired = quick(evaluation(hits)), quick(evaluation(hits, kept=False))
    apart = hits[:, 2].astype(float) - hits[:, 4]
    row = found.layers[2]
    assert row.difference_error == pytest.approx(apart.std(ddof=1) / len(apart) ** 0.5)
    assert row.difference_error < 0.7 * unpaired.layers[2].difference_error
    assert (found.layers[3].difference, found.layers[3].difference_error) == (0, 0)
    assert (
        found.basis == "600 samples of 1 task"
        and found.layer == 2
        and not found.as_shipped
    )
    assert (found.apart.unit, found.apart.blocks) == ("fold", 5)
    seen, error = found.apart.difference, found.apart.difference_error
    assert 0 < found.gain < seen and found.gain == pytest.approx(seen - error**2 / seen)
    assert found.why.startswith("the best score, measurably above ")


def test_two_tasks_count_alike_whatever_their_sizes():
    one, two = (
        hits_of((0.5, 0.6, 0.75, 0.7), 600, 0),
        hits_of((0.5, 0.6, 0.72, 0.7), 200, 1),
    )
    found = quick(evaluation(one, two))
    means = [hits.astype(float).mean(0) for hits in (one, two)]
    assert found.layers[2].score == pytest.approx((means[0][2] + means[1][2]) / 2)
    errors = [stats.sem(hits[:, 2].astype(float) - hits[:, 4]) for hits in (one, two)]
    assert found.layers[2].difference_error == pytest.approx(
        np.hypot(*errors) / 2, rel=0.02
    )


def test_three_tasks_are_paired_over_the_tasks():
    hits = [hits_of((0.5, 0.6, 0.75, 0.7), 200, seed) for seed in range(3)]
    found = quick(evaluation(*hits))
    assert found.basis == "3 tasks"
    apart = [each[:, 2].mean() - each[:, 4].mean() for each in hits]
    assert found.layers[2].difference_error == pytest.approx(stats.sem(apart))


def test_where_no_layer_differs_the_model_as_shipped_stays_and_the_shallowest_is_an_offer():
    found = quick(evaluation(hits_of((0.3, 0.69, 0.705, 0.7), 300, 3)))
    assert found.as_shipped and found.within == (1, 2) and found.gain == 0
    assert found.why.startswith("no layer is measurably better than ")
    shown = found.document()
    assert shown.answer.startswith(
        "no layer differs measurably; layers 1 and 2 are within the margin of the model as shipped · 70.0 ±2.6 %"
    )
    (line,) = [
        line
        for line in shown.reasons
        if line.startswith("on offer: layer 1, the shallowest within the margin")
    ]
    assert "layerscope truncate m --layer 1" in line
    assert shown.commands == ()


def test_a_loss_that_is_allowed_is_zero_for_the_model_as_shipped():
    found = quick(evaluation(hits_of((0.3, 0.4, 0.5, 0.7), 300, 3)), max_loss=1)
    assert found.as_shipped and (found.gain, found.gain_error) == (0, 0)


def test_too_few_samples_choose_nothing():
    found = quick(evaluation(hits_of((0.3, 0.4, 0.9, 0.7), 40, 3)))
    assert found.as_shipped and found.lacking.startswith(
        "only 40 samples: 50 judged samples are needed"
    )
