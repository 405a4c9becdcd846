"""A verdict follows from where the interval lies, and from nothing else."""

import math

import numpy as np
import pytest
from scipy import stats

from layerscope_papers.intervals import (
    Interval,
    bootstrap,
    exact,
    mean,
    slope,
    unpaired,
)
from layerscope_papers.recipe import Claim
from layerscope_papers.verdicts import decide, overall


def claim(direction="above", threshold=0.0, **more):
    return Claim("c", "A claim.", "a statistic", threshold, direction, "seeds", **more)


@pytest.mark.parametrize(
    "low, high, above, below",
    [
        (0.1, 0.3, "held", "did not hold"),
        (-0.3, -0.1, "did not hold", "held"),
        (-0.1, 0.1, "not decided", "not decided"),
        (0.0, 0.2, "not decided", "not decided"),
        (math.nan, math.nan, "not decided", "not decided"),
    ],
)
def test_an_interval_wholly_beyond_the_threshold_decides(low, high, above, below):
    interval = Interval((low + high) / 2, low, high, 5)
    assert decide(claim("above"), interval).word == above
    assert decide(claim("below"), interval).word == below


def test_fewer_than_three_values_decide_nothing():
    assert decide(claim(), mean([1.0, 1.1])).word == "not decided"
    assert decide(claim(), mean([1.0, 1.1])).wants == "at least 3 seeds"
    assert decide(claim(), mean([1.0, 1.1, 1.05])).word == "held"


def test_an_undecided_claim_says_how_many_values_would_decide_it():
    values = [1.0, -0.5, 0.8, -0.2, 0.9]
    wants = decide(claim(), mean(values)).wants
    more = int(wants.split()[1])
    assert more > len(values)
    spread = np.std(values, ddof=1)
    reach, one_less = (
        stats.t.ppf(0.975, n - 1) * spread / math.sqrt(n) for n in (more, more - 1)
    )
    assert reach < np.mean(values) <= one_less
    assert (
        decide(claim(decided_by="another model"), mean(values)).wants == "another model"
    )


def test_a_recipe_holds_only_where_all_its_claims_do():
    held, lost = decide(claim(), exact(1.0)), decide(claim(), exact(-1.0))
    open_ = decide(claim(), mean([1.0]))
    assert overall((held, held)) == "held"
    assert overall((held, open_)) == "not decided"
    assert overall((held, open_, lost)) == "did not hold"


def test_intervals_cover_as_often_as_they_say():
    draws = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        found = mean(draws.normal(2, 1, 5).tolist())
        hits += found.low <= 2 <= found.high
    assert 0.92 <= hits / 400 <= 0.98


def test_intervals_are_those_of_the_textbook():
    points = [1, 2, 3, 4, 5], [1.1, 1.9, 3.2, 3.9, 5.1]
    found, line = slope(*points), stats.linregress(*points)
    assert found.value == pytest.approx(line.slope)
    reach = stats.t.ppf(0.975, 3) * line.stderr
    assert found.high - found.value == pytest.approx(reach)
    one, other = [3.0, 5.0, 4.0], [1.0, 3.5, 2.0, 2.0, 0.5]
    welch = stats.ttest_ind(one, other, equal_var=False).confidence_interval()
    found = unpaired(one, other)
    middle, reach = (welch.low + welch.high) / 2, (welch.high - welch.low) / 2
    assert found.value == pytest.approx(middle)
    assert reach <= found.high - middle < 2 * reach
    rows = np.random.default_rng(1).normal(3, 1, (200, 1))
    found = bootstrap(rows, lambda given: given.mean())
    assert found.low < 3 < found.high
    assert found.high - found.low == pytest.approx(2 * 1.96 / math.sqrt(200), rel=0.15)
