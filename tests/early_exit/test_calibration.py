"""Thresholds with a guarantee: the walk against loops, and the guarantee against simulation."""

import math
import tracemalloc
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from populations import ONE_PERCENT, constant, exact_tail, population, recorded
from scipy.stats import binom

from layerscope.early_exit.calibration import (
    NEVER,
    Goal,
    calibrate_recorded,
    threshold_path,
)

# by hand: a loop over thresholds, rows and exits, and sums of exact fractions


def left_at(row, exits, threshold):
    sure = (layer for layer in exits if row.scores[0, layer - 1] >= threshold)
    return next(sure, row.depth)


def by_hand(data, exits, goal, thresholds):
    rows = [data.take(np.array([number])) for number in range(len(data))]
    kept, seen = math.nan, -1
    for threshold in (NEVER, *thresholds):
        errors = 0
        for row in rows:
            leaving = left_at(row, exits, threshold)
            errors += row.predictions[0, leaving - 1] != row.full[0]
        p_value = exact_tail(errors, len(data), goal.max_disagreement)
        if p_value > 1 - Fraction(goal.confidence):
            break
        kept, seen = threshold, errors
    return kept, seen


# the path


@pytest.mark.parametrize("classes", [2, 3, 1000])
def test_the_path_goes_from_careful_to_greedy_in_even_log_odds(classes):
    found = np.array(threshold_path(classes, [1, 2]))
    assert found[0] == 1 and found[-1] == 1 / classes
    assert (np.diff(found) < 0).all()
    inner = found[1:-1]
    log_odds = np.log(inner / (1 - inner))
    coarse = inner < 1 - 1e-9  # closer to 1 the rounding of 1 - p shows
    assert np.diff(log_odds[coarse]) == pytest.approx(-0.05, abs=1e-5)
    assert log_odds[0] == pytest.approx(32, abs=0.02) and log_odds[-1] < (
        -6.8 if classes == 1000 else 0.1
    )
    assert threshold_path(classes, [4]) == tuple(found)


# the walk


@pytest.mark.parametrize("goal", [Goal(0.2), Goal(0.1, confidence=0.9)])
def test_the_walk_equals_a_loop(goal, monkeypatch):
    # fewer thresholds for the loop
    monkeypatch.setattr("layerscope.early_exit.calibration.STEP", 0.8)
    found = set()
    for seed in range(12):
        data = population(60, seed)
        data = replace(data, scores=data.scores.round(2))  # ties
        exits = ((1, 2, 3, 4), (3, 1), (2,), ())[seed % 4]
        ordered = tuple(sorted(exits))
        threshold, errors = by_hand(data, ordered, goal, threshold_path(3, exits))
        made = calibrate_recorded(data, exits, goal)
        assert (made.threshold, made.errors) == (threshold, errors)
        assert made.exits == ordered
        found.add(threshold)
    assert NEVER in found and len(found) > 1


def test_the_walk_stops_at_the_first_threshold_that_fails():
    # leaving at layer 2 is wrong, at layer 1 it is right again: a greedier threshold would pass
    data = recorded(np.tile([0.6, 0.9, 1.0], (299, 1)), np.tile([0, 1, 0], (299, 1)))
    made = calibrate_recorded(data, [1, 2], ONE_PERCENT)
    above = [threshold for threshold in threshold_path(2, [1, 2]) if threshold > 0.9]
    assert made.threshold == above[-1] and made.tested == len(above) + 1
    assert made.errors == 0 and made.mean_layer == 3
    alone = calibrate_recorded(data, [1], ONE_PERCENT)
    assert alone.threshold == 0.5 and alone.mean_layer == 1


def test_what_a_calibration_tells():
    data = population(1000, 0)
    made = calibrate_recorded(data, [1, 3], ONE_PERCENT)
    rows = (data.take(np.array([row])) for row in range(1000))
    layers = np.array([left_at(row, (1, 3), made.threshold) for row in rows])
    predicted = data.predictions[np.arange(1000), layers - 1]
    assert 1 < made.mean_layer == layers.mean() < 5
    assert made.errors == (predicted != data.full).sum() == 1000 * made.disagreement
    assert made.accuracy == (predicted == data.labels).mean()
    assert made.full_accuracy == (data.full == data.labels).mean()
    assert made.p_value == pytest.approx(binom.cdf(made.errors, 1000, 0.01))
    assert made.p_value <= 0.05
    assert (made.n, made.depth, made.goal) == (1000, 5, ONE_PERCENT)
    unlabelled = calibrate_recorded(replace(data, labels=None), [1, 3], ONE_PERCENT)
    assert unlabelled == replace(made, accuracy=None, full_accuracy=None)


def test_nothing_grows_with_rows_times_thresholds():
    data = population(20_000, 0)
    tracemalloc.start()
    calibrate_recorded(data, [1, 2, 3, 4], ONE_PERCENT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * data.scores.nbytes < 20_000 * len(threshold_path(3, [1])) / 2


# the guarantee


def test_the_guarantee_holds_where_it_is_tight():
    """All rows leave at once, with a risk just above the goal: passing is a violation, nearly as often as δ allows."""
    draw, draws = np.random.default_rng(0), 1000
    passed = 0
    for _ in range(draws):
        errors = draw.binomial(299, 0.0101)
        made = calibrate_recorded(constant(299, errors), [1], ONE_PERCENT)
        passed += made.mean_layer == 1
    assert binom.ppf(0.01, draws, 0.9899**299) <= passed <= binom.ppf(0.99, draws, 0.05)
