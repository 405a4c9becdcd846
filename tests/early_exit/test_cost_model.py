from dataclasses import replace

import numpy as np
import pytest
from exit_times import predict, random_recorded, random_times, seconds_at, slow_seconds, split

from layerscope.early_exit.cost_model import STAGES, Simulation, Times
from layerscope.early_exit.predictions import Recorded


def times_of(rows: tuple[int, ...], tokens: tuple[int, ...], **seconds: object) -> Times:
    zeros = {stage: np.zeros((len(rows), len(tokens))) for stage in STAGES}
    return Times(
        rows,
        tokens,
        zeros | {stage: np.asarray(table, dtype=float) for stage, table in seconds.items()},
    )


def test_times_are_linear_between_what_was_measured() -> None:
    times = times_of((1, 4, 8), (10, 30), block=[[1, 3], [4, 8], [6, 20]])
    for (rows, tokens), expected in {
        (1, 10): 1,
        (8, 30): 20,
        (4, 20): 6,
        (6, 10): 5,
        (6, 20): 9.5,
        (2, 25): 0.25 * 2 + 0.75 * (3 + 5 / 3),
        (2, 10): 2,
        (0, 10): 0,
        (0, 30): 0,
        (16, 40): 20,
    }.items():
        assert seconds_at(times, "block", rows, tokens) == pytest.approx(expected), (rows, tokens)
    assert times.at("block", np.array([1, 8]), np.array([10, 30])).tolist() == [[1, 3], [6, 20]]
    one = times_of((4,), (10,), block=[[2]])
    assert one.at("block", np.array([0, 4]), np.array([10])).tolist() == [[0], [2]]


def test_times_between_are_those_of_an_interpolator() -> None:
    from scipy.interpolate import RegularGridInterpolator

    rng = np.random.default_rng(0)
    times = random_times(rng, rows=(1, 2, 4, 8, 16), tokens=(4, 9, 30, 64))
    asked = np.stack([rng.uniform(1, 16, 500), rng.uniform(4, 64, 500)], 1)
    for stage in STAGES:
        reference = RegularGridInterpolator((times.rows, times.tokens), times.seconds[stage])(asked)
        found = [seconds_at(times, stage, rows, tokens) for rows, tokens in asked]
        np.testing.assert_allclose(found, reference, rtol=1e-12)


def test_a_case_by_hand() -> None:
    """Two batches, three layers; block: a second a row and a tenth a token; each of the rest its own number."""
    block = [[1 + 0.5, 1 + 1.0], [4 + 0.5, 4 + 1.0]]
    same = {"front": 0.25, "check": 0.125, "leave": 0.0625, "head": 0.03125, "end": 0.5}
    times = times_of(
        (1, 4), (5, 10), block=block, **{stage: np.full((2, 2), v) for stage, v in same.items()}
    )
    scores = np.array(
        [[0.9, 0.0, 0.0], [0.1, 0.9, 0.0], [0.1, 0.1, 0.0], [0.95, 0.0, 0.0], [0.9, 0.9, 0.0]]
    )
    lengths = np.array([10, 6, 5, 8, 9])
    recorded = Recorded("confidence", 2, scores, np.zeros((5, 3), dtype=np.int64), lengths)
    plan = [np.array([0, 1, 2]), np.array([3, 4])]

    found = predict(recorded, plan, (1, 2), 0.9, times)
    # batch 1: 3 rows of 10; the long one leaves, 2 rows of 6; one leaves, 1 row of 5. batch 2: 2
    # rows of 9, both leave what is left of batch 1 in the end is read as by an exit; both are put
    # in order again
    first = 0.25 + (3 + 1.0) + 0.125 + 0.0625 + (2 + 0.6) + 0.125 + 0.0625 + (1 + 0.5) + 0.125 + 0.5
    second = 0.25 + (2 + 0.9) + 0.125 + 0.5
    assert found.seconds == pytest.approx(first + second)
    assert found.plain_seconds == pytest.approx(
        2 * 0.25 + 3 * (3 + 1.0) + 3 * (2 + 0.9) + 2 * 0.03125
    )
    assert found.speedup == pytest.approx(found.plain_seconds / found.seconds)
    assert found.leaving.tolist() == [3, 1, 1]

    padded = predict(recorded, plan, (1, 2), 0.9, times, trims=False)
    assert padded.seconds == pytest.approx(first + second + 0.4 + 0.5)

    none = predict(recorded, plan, (1, 2), 0.99, times)
    assert none.seconds == pytest.approx(none.plain_seconds + 4 * 0.125), (
        "checks that no row passes cost their time"
    )
    assert predict(recorded, plan, (), np.inf, times).speedup == 1


@pytest.mark.parametrize("trims", [True, False])
@pytest.mark.parametrize("criterion", ["confidence", "patience"])
def test_predictions_are_those_of_a_walk_through_every_batch(trims: bool, criterion: str) -> None:
    rng = np.random.default_rng(3)
    for draw in range(6):
        recorded = random_recorded(rng, n=57, depth=5, criterion=criterion)
        times, plan = random_times(rng), split(rng.permutation(57), 1 + 5 * draw)
        for exits in ((), (2,), (1, 2, 3, 4), (1, 4)):
            threshold = 1.0 if criterion == "patience" else rng.uniform(0, 1)
            found = predict(recorded, plan, exits, threshold, times, trims=trims)
            walked = slow_seconds(recorded, plan, exits, threshold, times, trims=trims)
            assert found.seconds == pytest.approx(walked, rel=1e-12)
            assert found.plain_seconds == pytest.approx(
                slow_seconds(recorded, plan, (), 0, times, trims=trims)
            )
            assert found.leaving.sum() == 57


def test_a_plan_may_hold_some_samples_some_of_them_twice() -> None:
    rng = np.random.default_rng(4)
    recorded, times = random_recorded(rng, n=20, depth=4), random_times(rng)
    plan = [np.array([3, 3, 19]), np.array([], dtype=np.int64), np.array([7])]
    found = predict(recorded, plan, (1, 2), 0.6, times)
    assert found.seconds == pytest.approx(
        slow_seconds(recorded, plan, (1, 2), 0.6, times, trims=True)
    )
    assert found.leaving.sum() == 4


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
