import math
from itertools import combinations

import numpy as np
import pytest
from exit_times import predict, random_recorded, random_times, split

from layerscope.early_exit.cost_model import STAGES, Exits, Times, choose_exits
from layerscope.early_exit.findings import disturbance, judged
from layerscope.early_exit.predictions import Recorded
from layerscope.early_exit.timing import speedup


def flat(**seconds: float) -> Times:
    """Times in proportion to rows, whatever the tokens."""
    rows = np.array([[1.0], [8.0]])
    return Times((1, 8), (1,), {stage: seconds.get(stage, 0.0) * rows for stage in STAGES})


def sure_after(first: list[int], depth: int) -> Recorded:
    """Samples that are sure from a layer of their own on, and right."""
    scores = (np.arange(1, depth + 1) >= np.asarray(first)[:, None]).astype(float)
    return Recorded(
        "confidence",
        2,
        scores,
        np.zeros(scores.shape, dtype=np.int64),
        np.ones(len(scores), dtype=int),
    )


def always(threshold: float):
    return lambda exits: threshold


def test_an_exit_whose_check_costs_more_than_it_saves_is_dropped() -> None:
    recorded = sure_after([1] * 4 + [4] * 4, depth=4)
    plan = [np.arange(8)]
    cheap = choose_exits(recorded, plan, flat(block=1.0, check=0.1), always(0.5))
    assert (cheap.exits, cheap.threshold) == ((1,), 0.5), "layers 2 and 3 let nobody go"
    # 8 rows: 8 blocks, a check of 8 rows, then 3 × 4, and the last 4 are read
    assert cheap.seconds == pytest.approx(8 + 0.8 + 12 + 0.4)
    assert cheap.plain_seconds == pytest.approx(32)
    assert cheap.leaving.tolist() == [4, 0, 0, 4]


def test_where_nothing_pays_nothing_is_checked() -> None:
    recorded = sure_after([1] * 4 + [4] * 4, depth=4)
    choice = choose_exits(recorded, [np.arange(8)], flat(block=1.0, check=1.6), always(0.5))
    assert (choice.exits, choice.threshold, choice.speedup) == ((), math.inf, 1.0)
    assert choice.leaving.tolist() == [0, 0, 0, 8]


def test_a_model_of_one_layer_has_nothing_to_choose() -> None:
    choice = choose_exits(sure_after([1, 1], depth=1), [np.arange(2)], flat(block=1.0), always(0.5))
    assert choice.exits == ()


def test_thresholds_are_asked_of_the_caller_for_the_very_exits() -> None:
    """An exit that may only be taken alone is found though all sets with others are barred."""
    recorded = sure_after([2] * 6 + [5] * 2, depth=5)
    asked: list[Exits] = []

    def allowed(exits: Exits) -> float:
        asked.append(exits)
        return 0.5 if exits == (2,) else math.inf

    choice = choose_exits(recorded, [np.arange(8)], flat(block=1.0, check=0.1), allowed)
    assert (choice.exits, choice.threshold) == ((2,), 0.5)
    assert () not in asked
    assert all(exits == tuple(sorted(set(exits))) for exits in asked)


def greediest(recorded: Recorded, goal: float):
    """Return the least threshold of a grid with which so few disagree."""

    def allowed(exits: Exits) -> float:
        for threshold in np.linspace(0.3, 1, 50):
            if recorded.disagrees(recorded.leaves(exits, threshold)).mean() <= goal:
                return float(threshold)
        return math.inf

    return allowed


def test_the_choice_is_near_the_best_of_all_sets() -> None:
    rng = np.random.default_rng(0)
    lost, chosen = [], set()
    for draw in range(12):
        recorded = random_recorded(rng, n=150, depth=6)
        times, plan = random_times(rng), split(np.arange(150), (1, 8, 32)[draw % 3])
        allowed = greediest(recorded, 0.3)
        choice = choose_exits(recorded, plan, times, allowed)
        found = predict(recorded, plan, choice.exits, choice.threshold, times)
        assert found.seconds == choice.seconds
        sets = [exits for size in range(6) for exits in combinations(range(1, 6), size)]
        best = min(predict(recorded, plan, exits, allowed(exits), times).seconds for exits in sets)
        lost.append(choice.seconds / best)
        chosen.add(choice.exits)
        assert choice.speedup >= 1
    assert max(lost) < 1.03
    assert len(chosen) > 3, "the draws ask for different exits"


def test_a_verdict_in_words() -> None:
    assert judged(1.42, math.nan, 1.05) == (True, "pays: 1.42× expected")
    assert judged(1.034, math.nan, 1.05) == (False, "does not pay: 1.03× expected")
    assert judged(1.046, math.nan, 1.05)[1] == "pays: 1.05× expected", (
        "it says of a number what it shows"
    )
    assert not judged(1.42, 1.42, 1.5)[0]
    assert judged(1.42, 1.38, 1.05)[1] == "pays: 1.42× expected, 1.38× measured"
    assert not judged(1.42, 1.04, 1.05)[0], "what was measured counts as well"
    assert judged(1.42, 1.38, 1.05, 0.021)[1] == "pays: 1.42× expected, 1.38× ±0.02 measured"
    assert judged(2.26, 3.07, 2.5, 0.2, "the machine was busy") == (
        False,
        "does not pay: 2.26× expected; the machine was busy, so 3.07× measured does not count",
    )


@pytest.mark.parametrize(
    ("measured", "control", "milliseconds", "words"),
    [
        (
            (3.07, 0.1),
            (1.0, 0.01),
            100,
            "exits measured 3.07× ±0.10, and the blocks they leave out allow 2.26×",
        ),
        ((2.60, 0.3), (1.0, 0.01), 100, ""),
        (
            (2.02, 0.1),
            (1.14, 0.02),
            100,
            "with exits that nobody takes the model measured 1.14× ±0.02 its own speed",
        ),
        (
            (2.02, 0.1),
            (0.88, 0.01),
            100,
            "with exits that nobody takes the model measured 0.88× ±0.01 its own speed",
        ),
        ((2.02, 0.1), (0.88, 0.01), 4, ""),
        ((2.28, 0.01), (0.99, 0.01), 100, ""),
    ],
    ids=[
        "impossible",
        "within its error",
        "control too fast",
        "control too slow",
        "small model",
        "quiet",
    ],
)
def test_a_busy_machine_shows_in_speeds_that_cannot_be(
    measured: tuple[float, float], control: tuple[float, float], milliseconds: float, words: str
) -> None:
    said = disturbance(*measured, 2.26, *control, milliseconds)
    assert said == (
        f"the machine was busy: {words}; measure again when it is quiet" if words else ""
    )


def test_a_speed_up_has_the_error_that_repeats_show() -> None:
    rng, ratios, errors = np.random.default_rng(0), [], []
    for _ in range(300):
        work = rng.uniform(1, 3, 20) * rng.lognormal(0, 0.1, (1, 20))
        ratio, error = speedup(
            work * rng.lognormal(0, 0.1, (1, 20)), work / 2 * rng.lognormal(0, 0.1, (1, 20))
        )
        ratios.append(ratio)
        errors.append(error)
    assert np.mean(ratios) == pytest.approx(2, rel=0.01)
    assert np.mean(errors) == pytest.approx(np.std(ratios), rel=0.1)
    spiked = np.ones((3, 8))
    spiked[1, 2] = 50.0
    assert speedup(np.ones((3, 8)), spiked)[0] == 1, (
        "a moment in which the machine was busy does not count"
    )


def test_what_is_expected_is_at_most_what_the_layers_left_out_allow() -> None:
    """Times taken while the machine was busy with something else: the large batch seems dearer by the row."""
    recorded = sure_after([1] * 4 + [4] * 4, depth=4)
    nothing, block = np.zeros((2, 1)), np.array([[1.0], [80.0]])
    slow = Times((4, 8), (1,), {stage: block if stage == "block" else nothing for stage in STAGES})
    found = predict(recorded, [np.arange(8)], (1,), 0.5, slow)
    assert found.plain_seconds / found.seconds > 3
    assert found.speedup == found.ceiling == pytest.approx(4 * 8 / (8 + 3 * 4))
