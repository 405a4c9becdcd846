"""What a goal asks for and how many samples it takes, against exact rational sums."""

import re
from fractions import Fraction

import numpy as np
import pytest
from populations import exact_tail
from typed import refused

from layerscope.early_exit.calibration import least_samples, p_value, split
from layerscope.early_exit.options import Goal


@pytest.mark.parametrize("risk", [0.001, 0.01, 0.1, 0.5, 0.9])
def test_p_values_are_exact_sums(risk):
    for n in (1, 2, 37, 299, 300):
        for errors in sorted({0, 1, 2, 5, n // 2, n - 1, n} & set(range(n + 1))):
            exact = float(exact_tail(errors, n, risk))
            value = p_value(errors, n, risk)
            assert value == pytest.approx(exact, rel=1e-10, abs=1e-300), (n, errors)
    together = p_value(np.arange(300), 299, risk)
    assert together.shape == (300,) and together[-1] == 1
    assert (np.diff(together) >= 0).all()


@pytest.mark.parametrize("risk", [0.9, 0.25, 0.05, 0.01, 0.005])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_least_samples_are_the_least(risk, confidence):
    n = least_samples(Goal(max_disagreement=risk, confidence=confidence))
    delta = 1 - Fraction(confidence)
    assert exact_tail(0, n, risk) <= delta * (1 + Fraction(1, 10**12))
    assert n == 1 or exact_tail(0, n - 1, risk) > delta


def test_split_keeps_the_tested_rows_apart():
    goal = Goal(max_disagreement=0.01)
    design, tested = split(1000, goal, seed=3)
    assert len(design) == 200 and len(tested) == 800
    assert sorted([*design, *tested]) == list(range(1000))
    assert (np.diff(design) > 0).all() and (np.diff(tested) > 0).all()
    again, other = split(1000, goal, seed=3), split(1000, goal, seed=4)
    assert np.array_equal(again[0], design) and not np.array_equal(other[0], design)
    # drawn from everywhere, not from one end
    assert np.bincount(design // 100, minlength=10).min() > 5


@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_split_says_how_many_rows_are_needed(confidence):
    goal = Goal(max_disagreement=0.01, confidence=confidence)
    least = least_samples(goal)
    for n in (0, 1, 60, least):
        with refused(f"of {n} samples .* needs {least}: give ") as error:
            split(n, goal)
    needed = int(
        re.search(r"give ([\d,]+) in all", str(error.value))[1].replace(",", "")
    )
    assert len(split(needed, goal)[1]) == least and len(split(needed, goal)[0]) > 0
    with refused(f"give {needed:,} in all"):
        split(needed - 1, goal)
