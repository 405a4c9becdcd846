from dataclasses import replace

import numpy as np
import pytest
from exit_times import predict, random_recorded, random_times, seconds_at, slow_seconds, split

from layerscope.early_exit.cost_model import STAGES, Simulation


def test_times_between_are_those_of_an_interpolator() -> None:
    from scipy.interpolate import RegularGridInterpolator

    rng = np.random.default_rng(0)
    times = random_times(rng, rows=(1, 2, 4, 8, 16), tokens=(4, 9, 30, 64))
    asked = np.stack([rng.uniform(1, 16, 500), rng.uniform(4, 64, 500)], 1)
    for stage in STAGES:
        reference = RegularGridInterpolator((times.rows, times.tokens), times.seconds[stage])(asked)
        found = [seconds_at(times, stage, rows, tokens) for rows, tokens in asked]
        np.testing.assert_allclose(found, reference, rtol=1e-12)
        beyond = [(0, 9, 0.0), (32, 99, times.seconds[stage][-1, -1])]
        for rows, tokens, seconds in beyond:
            assert seconds_at(times, stage, rows, tokens) == seconds


@pytest.mark.parametrize("trims", [True, False])
@pytest.mark.parametrize("criterion", ["confidence", "patience"])
def test_predictions_are_those_of_a_walk_through_every_batch(trims: bool, criterion: str) -> None:
    rng = np.random.default_rng(3)
    for draw in range(6):
        recorded = random_recorded(rng, n=57, depth=5, criterion=criterion)
        times, plan = random_times(rng), split(rng.permutation(57), 1 + 5 * draw)
        plan.append(np.array([3, 3, 19]))  # a plan may hold a sample twice
        for exits in ((), (2,), (1, 2, 3, 4), (1, 4)):
            threshold = 1.0 if criterion == "patience" else rng.uniform(0, 1)
            found = predict(recorded, plan, exits, threshold, times, trims=trims)
            walked = slow_seconds(recorded, plan, exits, threshold, times, trims=trims)
            assert found.seconds == pytest.approx(walked, rel=1e-12)
            assert found.plain_seconds == pytest.approx(
                slow_seconds(recorded, plan, (), 0, times, trims=trims)
            )
            assert found.leaving.sum() == 60


def test_the_plain_model_runs_without_hooks() -> None:
    rng = np.random.default_rng(2)
    recorded, plan = random_recorded(rng, 40, 4), split(np.arange(40), 8)
    hooked = random_times(rng)
    bare = replace(hooked, bare=0.8)
    one, other = (Simulation(recorded, plan, times) for times in (hooked, bare))
    assert other.plain_seconds == pytest.approx(0.8 * one.plain_seconds)
    assert other.run((2,), 0.7).seconds == pytest.approx(one.run((2,), 0.7).seconds)
    assert other.run((), np.inf).speedup == 1
    assert other.run((1, 2, 3), np.inf).speedup == 1, (
        "an exit model that never leaves checks nothing"
    )
