"""Differences, the best if it is clear, and a loss that is allowed, on cases made by hand."""

import math

import numpy as np
import pytest
from scipy import stats
from typed import refused

from layerscope.selection.scored import (
    Scored,
    best_if_clear,
    within_loss,
)


def scored(values, errors=None, unit="task"):
    """Rows are units; the last column is the baseline."""
    array = np.array(values, dtype=float)
    return Scored(
        tuple(range(array.shape[1] - 1)),
        array,
        np.array(errors or [math.nan] * array.shape[1]),
        unit,
        "",
    )


def test_a_paired_difference_is_that_of_a_t_test():
    rng = np.random.default_rng(0)
    values = rng.random((50, 3))
    mean, error = scored(values).difference(0, 1)
    test = stats.ttest_rel(values[:, 0], values[:, 1])
    assert mean == pytest.approx((values[:, 0] - values[:, 1]).mean())
    assert mean / error == pytest.approx(test.statistic)


def test_two_tasks_have_no_spread_to_choose_by():
    # one task prefers layer 0 by a little, the other layer 1 by a lot: paired, the error would be
    # 20 points
    tasks = [[0.61, 0.60, 0.60], [0.30, 0.70, 0.70]]
    assert math.isnan(scored(tasks).difference(0, 1)[1])
    known = scored(tasks, [0.01, 0.02, 0.02])
    assert known.difference(0, 1) == pytest.approx((-0.195, math.hypot(0.01, 0.02)))
    three = np.array([*tasks, [0.61, 0.60, 0.60]])
    error = stats.sem(three[:, 0] - three[:, 1])
    assert scored(three).difference(0, 1)[1] == pytest.approx(error)


def test_loss_that_is_allowed():
    case = scored([[0.2, 0.47, 0.48, 0.5]])
    assert within_loss(case, [0, 1, 2, 3], 3) == [1, 2, 3]
    assert within_loss(case, [0, 1, 2, 3], 0) == [3]
    with refused(r"loses at most 1 point: the least is 2.00 \(layer 2\)"):
        within_loss(case, [0, 1, 2], 1)


def test_the_best_is_chosen_where_it_is_measurably_better_and_else_the_model_as_shipped():
    rng = np.random.default_rng(0)
    right = (rng.random((400, 1)) < [0.5, 0.6, 0.62, 0.6]).astype(float)
    right[:, 3] = right[:, 2]
    clear = np.hstack([right, right[:, 1:2]])  # the baseline is layer 1
    case = scored(clear, unit="sample")
    better = stats.ttest_rel(clear[:, 2], clear[:, 4])
    assert best_if_clear(case, [1, 2, 3, 4]) == (
        2 if abs(better.statistic) > 1.96 else 4
    )
    sure = clear.copy()
    sure[:40, 2], sure[:40, 4] = 1, 0
    assert best_if_clear(scored(sure, unit="sample"), [1, 2, 3, 4]) == 2
    assert best_if_clear(scored(sure, unit="sample"), [1, 2, 3]) == 2, (
        "within a bound that it does not meet"
    )
    assert best_if_clear(scored([[0.5, 0.6, 0.55]]), [0, 1, 2]) == 1, (
        "no error is known: the best"
    )


def test_the_last_layer_with_the_scores_of_the_model_as_shipped_loses_nothing_for_certain():
    case = scored([[0.2, 0.5, 0.6, 0.6]], [0.02] * 4)
    assert case.difference(2, 3) == case.difference(3, 2) == (0.0, 0.0)
    assert case.difference(1, 3)[1] > 0
