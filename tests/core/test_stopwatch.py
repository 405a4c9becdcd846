"""One stopwatch: calls take turns, and the first round is not counted."""

import time

import numpy as np
import pytest
import torch

from layerscope.core.stopwatch import Stopwatch, rounds_in


def test_calls_take_turns_that_begin_with_another_one_in_every_round():
    order = []
    runs = [lambda name=name: order.append(name) for name in "abc"]
    seconds = Stopwatch(torch.device("cpu")).rounds(runs, 3, 3, 0.0)
    rounds = ["abc", "abc", "abc", "bca", "cab"]  # warmed up, timed, and counted
    assert "".join(order) == "".join(rounds)
    assert seconds.shape == (3, 3) and (seconds > 0).all()


def test_each_call_has_its_own_seconds():
    calls = iter([0.0, 0.0, 0.01, 0.2, 0.01])
    runs = [lambda: time.sleep(next(calls))]
    seconds = Stopwatch(torch.device("cpu")).rounds(runs, 3, 3, 0.0)
    assert seconds[1, 0] >= 0.2 and 0.01 <= np.median(seconds) < 0.1


@pytest.mark.parametrize("seconds, rounds", [(0.0, 2), (1.0, 4), (9.0, 7)])
def test_rounds_fill_the_time_there_is(seconds, rounds):
    assert rounds_in(seconds, 0.25, 2, 7) == rounds
