import json
from dataclasses import replace

import numpy as np
import pytest
from exit_times import random_recorded, random_times, slow_seconds, split

from layerscope.core.errors import LayerscopeError
from layerscope.early_exit.cost_model import STAGES, Simulation, Times, predict
from layerscope.early_exit.recorded import Recorded


def times_of(rows: tuple[int, ...], tokens: tuple[int, ...], **seconds: object) -> Times:
    zeros = {stage: np.zeros((len(rows), len(tokens))) for stage in STAGES}
    return Times(rows, tokens, zeros | {stage: np.asarray(table, dtype=float) for stage, table in seconds.items()})


def test_times_are_linear_between_what_was_measured_and_sane_beyond() -> None:
    times = times_of((1, 4, 8), (10, 30), block=[[1, 3], [4, 8], [6, 20]], check=[[5, 5], [4, 4], [3, 3]])
    for (rows, tokens), expected in {
        (1, 10): 1, (8, 30): 20, (4, 20): 6, (6, 10): 5, (6, 20): 9.5, (2, 25): 0.25 * 2 + 0.75 * (3 + 5 / 3),
        (1, 2): 1, (16, 10): 10, (8, 40): 27, (2, 10): 2, (0, 10): 0, (0, 99): 0,
    }.items():  # fmt: skip
        assert times.at("block", rows, tokens) == pytest.approx(expected), (rows, tokens)
    assert times.at("check", 100, 30) == 3, "what got cheaper does not fall below zero further on"
    assert times.at("block", [[1], [8]], [10, 30]).tolist() == [[1, 3], [6, 20]]


def test_times_between_are_those_of_an_interpolator() -> None:
    from scipy.interpolate import RegularGridInterpolator

    rng = np.random.default_rng(0)
    times = random_times(rng, rows=(1, 2, 4, 8, 16), tokens=(4, 9, 30, 64))
    asked = np.stack([rng.uniform(1, 16, 500), rng.uniform(4, 64, 500)], 1)
    for stage in STAGES:
        reference = RegularGridInterpolator((times.rows, times.tokens), times.seconds[stage])(asked)
        np.testing.assert_allclose(times.at(stage, asked[:, 0], asked[:, 1]), reference, rtol=1e-12)


def test_times_of_one_size_are_in_proportion() -> None:
    times = times_of((4,), (10,), block=[[2]])
    assert times.at("block", [4, 8, 2], 10).tolist() == [2, 4, 1]
    assert times.at("block", 4, [20, 5]).tolist() == [4, 1]


def test_times_survive_json() -> None:
    times = random_times(np.random.default_rng(1))
    again = Times.from_dict(json.loads(json.dumps(times.as_dict())))
    assert again.as_dict() == times.as_dict()
    assert again.at("check", 3, 17) == times.at("check", 3, 17)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": [2, 1]},
        {"rows": []},
        {"tokens": [0, 5]},
        {"seconds": {}},
        {"seconds": {stage: [[1.0]] for stage in STAGES}},
        {"seconds": {stage: [[-1.0, 1.0], [1.0, 1.0]] for stage in STAGES}},
        {"seconds": {stage: [[float("nan"), 1.0], [1.0, 1.0]] for stage in STAGES}},
        {"seconds": {stage: "much" for stage in STAGES}},
    ],
)
def test_times_that_make_no_sense_are_refused(change: dict[str, object]) -> None:
    stored = times_of((1, 2), (5, 9)).as_dict()
    with pytest.raises(LayerscopeError, match="measure again"):
        Times.from_dict(stored | change)


def test_a_case_by_hand() -> None:
    """Two batches, three layers; block: a second a row and a tenth a token; each of the rest its own number."""
    block = [[1 + 0.5, 1 + 1.0], [4 + 0.5, 4 + 1.0]]
    same = {"front": 0.25, "check": 0.125, "leave": 0.0625, "head": 0.03125, "end": 0.5}
    times = times_of((1, 4), (5, 10), block=block, **{stage: np.full((2, 2), v) for stage, v in same.items()})
    scores = np.array([[0.9, 0.0, 0.0], [0.1, 0.9, 0.0], [0.1, 0.1, 0.0], [0.95, 0.0, 0.0], [0.9, 0.9, 0.0]])
    lengths = np.array([10, 6, 5, 8, 9])
    recorded = Recorded("confidence", 2, scores, np.zeros((5, 3), dtype=np.int64), lengths)
    plan = [np.array([0, 1, 2]), np.array([3, 4])]

    found = predict(recorded, plan, (1, 2), 0.9, times)
    # batch 1: 3 rows of 10; the long one leaves, 2 rows of 6; one leaves, 1 row of 5. batch 2: 2 rows of 9, both leave
    # what is left of batch 1 in the end is read as by an exit; both are put in order again
    first = 0.25 + (3 + 1.0) + 0.125 + 0.0625 + (2 + 0.6) + 0.125 + 0.0625 + (1 + 0.5) + 0.125 + 0.5
    second = 0.25 + (2 + 0.9) + 0.125 + 0.5
    assert found.seconds == pytest.approx(first + second)
    assert found.plain_seconds == pytest.approx(2 * 0.25 + 3 * (3 + 1.0) + 3 * (2 + 0.9) + 2 * 0.03125)
    assert found.speedup == pytest.approx(found.plain_seconds / found.seconds)
    assert found.leaving.tolist() == [3, 1, 1]

    padded = predict(recorded, plan, (1, 2), 0.9, times, trims=False)
    assert padded.seconds == pytest.approx(first + second + 0.4 + 0.5)

    none = predict(recorded, plan, (1, 2), 0.99, times)
    assert none.seconds == pytest.approx(none.plain_seconds + 4 * 0.125), "checks that no row passes cost their time"
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
            assert found.plain_seconds == pytest.approx(slow_seconds(recorded, plan, (), 0, times, trims=trims))
            assert found.leaving.sum() == 57


def test_a_plan_may_hold_some_samples_some_of_them_twice() -> None:
    rng = np.random.default_rng(4)
    recorded, times = random_recorded(rng, n=20, depth=4), random_times(rng)
    plan = [np.array([3, 3, 19]), np.array([], dtype=np.int64), np.array([7])]
    found = predict(recorded, plan, (1, 2), 0.6, times)
    assert found.seconds == pytest.approx(slow_seconds(recorded, plan, (1, 2), 0.6, times, trims=True))
    assert found.leaving.sum() == 4


def test_a_plan_without_samples_is_refused() -> None:
    rng = np.random.default_rng(5)
    with pytest.raises(LayerscopeError, match="holds no samples"):
        predict(random_recorded(rng, n=3, depth=2), [], (1,), 0.5, random_times(rng))


def test_the_plain_model_runs_without_hooks() -> None:
    rng = np.random.default_rng(2)
    recorded, plan = random_recorded(rng, 40, 4), split(np.arange(40), 8)
    hooked = random_times(rng)
    bare = replace(hooked, bare=0.8)
    one, other = (Simulation(recorded, plan, times) for times in (hooked, bare))
    assert other.plain_seconds == pytest.approx(0.8 * one.plain_seconds)
    assert other.run((2,), 0.7).seconds == pytest.approx(one.run((2,), 0.7).seconds)
    assert other.run((), np.inf).speedup == 1
    assert other.run((1, 2, 3), np.inf).speedup == 1, "an exit model that never leaves checks nothing"
    assert Times.from_dict(bare.as_dict()).bare == 0.8
    with pytest.raises(LayerscopeError, match="share 0.0 of the stages is not valid"):
        replace(hooked, bare=0.0)
