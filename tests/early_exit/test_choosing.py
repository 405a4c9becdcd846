"""Which exits are chosen by what blocks and checks cost, and whether what was measured is worth having."""

import math
from itertools import combinations

import numpy as np
import pytest
from populations import recorded

from layerscope.early_exit.cost_model import Costs, choose_exits
from layerscope.early_exit.findings import judged
from layerscope.early_exit.timing import speedup


def flat(block, check):
    """Costs in proportion to rows."""
    return Costs((1, 8), (block, 8 * block), (check, 8 * check))


def sure_after(first, depth):
    """Samples that are sure from a layer of their own on, and right."""
    scores = (np.arange(1, depth + 1) >= np.asarray(first)[:, None]).astype(float)
    return recorded(scores, np.zeros(scores.shape))


def test_the_seconds_are_those_of_a_walk_through_every_batch():
    rng, depth, size = np.random.default_rng(3), 5, 6
    costs = Costs((1, 2, 4, 6), (3.0, 4.0, 7.0, 11.0), (1.0, 1.5, 2.0, 3.5))
    rows = (0, *costs.rows)
    block = np.interp(range(7), rows, (0.0, *costs.block))
    check = np.interp(range(7), rows, (0.0, *costs.check))
    for exits in ((), (2,), (1, 4), (1, 2, 3, 4)):
        leaving = rng.choice([*exits, depth], 27)
        total = 0.0
        for start in range(0, 27, size):
            batch = leaving[start : start + size]
            for layer in range(1, depth + 1):
                left = int((batch >= layer).sum())
                total += block[left] + (check[left] if layer in exits else 0.0)
        assert costs.seconds(leaving, exits, depth, size) == pytest.approx(
            total, rel=1e-12
        )


@pytest.mark.parametrize("check, exits", [(0.1, (1,)), (1.6, ())])
def test_an_exit_whose_check_costs_more_than_it_saves_is_not_chosen(check, exits):
    """Layers 2 and 3 let nobody go."""
    samples = sure_after([1] * 4 + [4] * 4, depth=4)
    assert choose_exits(samples, flat(1.0, check), 8, lambda _: 0.5) == exits


def test_a_model_of_one_layer_has_nothing_to_choose():
    assert (
        choose_exits(sure_after([1, 1], depth=1), flat(1.0, 0.0), 2, lambda _: 0.5)
        == ()
    )


def greediest(samples, goal):
    """Return the least threshold of a grid with which so few disagree."""

    def allowed(exits):
        for threshold in np.linspace(0.3, 1, 50):
            if samples.disagreement(samples.leaves(exits, threshold)) <= goal:
                return float(threshold)
        return math.inf

    return allowed


def test_the_choice_is_near_the_best_of_all_sets():
    rng = np.random.default_rng(0)
    lost, chosen = [], set()
    for draw in range(12):
        pace = rng.uniform(0.2, 3, (150, 1))
        doubt = rng.uniform(0.5, 1, (150, 6))
        scores = 1 - np.exp(-pace * np.arange(1, 7) / 6) * doubt
        wrong = rng.integers(1, 3, (150, 6))
        samples = recorded(
            scores, np.where(rng.uniform(size=(150, 6)) < scores, 0, wrong)
        )
        size, allowed = (1, 8, 32)[draw % 3], greediest(samples, 0.3)
        costs = Costs(
            (1, 32), (rng.uniform(5, 10), 40.0), (rng.uniform(0, 1), rng.uniform(1, 4))
        )

        seconds = {}
        for exits in (
            each for count in range(6) for each in combinations(range(1, 6), count)
        ):
            leaving = samples.leaves(exits, allowed(exits) if exits else math.inf)
            seconds[exits] = costs.seconds(leaving, exits, 6, size)
        exits = choose_exits(samples, costs, size, allowed)
        lost.append(seconds[exits] / min(seconds.values()))
        chosen.add(exits)
        assert seconds[exits] <= seconds[()]
    assert max(lost) < 1.03 and len(chosen) > 3, "the draws ask for different exits"


def test_a_verdict_in_words():
    assert judged(1.42, math.nan, 1.05) == (False, "does not pay: 1.42× measured")
    assert judged(1.38, 0.021, 1.05) == (True, "pays: 1.38× ±0.02 measured")
    assert judged(1.046, 0.001, 1.05)[0], "it says of a number what it shows"
    assert not judged(1.38, 0.25, 1.05)[0] and judged(0.8, 0.25, 0.01)[0]


def test_a_speed_up_has_the_error_that_repeats_show():
    rng, ratios, errors = np.random.default_rng(0), [], []
    for _ in range(300):
        work = rng.uniform(1, 3, 20) * rng.lognormal(0, 0.1, (1, 20))
        plain, other = (work * rng.lognormal(0, 0.1, (1, 20)) for _ in range(2))
        ratio, error = speedup(plain, other / 2)
        ratios.append(ratio)
        errors.append(error)
    assert np.mean(ratios) == pytest.approx(2, rel=0.01)
    assert np.mean(errors) == pytest.approx(np.std(ratios), rel=0.1)
    spiked = np.ones((3, 8))
    spiked[1, 2] = 50.0
    assert speedup(np.ones((3, 8)), spiked)[0] == 1, "a busy moment does not count"
