"""One stopwatch: calls take turns, the first round is not counted, and medians are what is given back."""

import time

import pytest
import torch

from layerscope.core.stopwatch import Stopwatch, rounds_in


def test_calls_take_turns_that_begin_with_another_one_in_every_round():
    order = []
    runs = [lambda name=name: order.append(name) for name in "abc"]
    found = Stopwatch(torch.device("cpu")).medians(runs, 3)
    assert (
        "".join(order) == "abc" + "abc" + "bca" + "cab"
        and found.shape == (3,)
        and (found > 0).all()
    )


def test_a_median_forgives_a_slow_call():
    calls = iter([0.0, 0.01, 0.2, 0.01])
    (found,) = Stopwatch(torch.device("cpu")).medians(
        [lambda: time.sleep(next(calls))], 3
    )
    assert 0.01 <= found < 0.1


@pytest.mark.parametrize(("seconds", "rounds"), [(0.0, 2), (1.0, 4), (9.0, 7)])
def test_rounds_fill_the_time_there_is(seconds, rounds):
    assert rounds_in(seconds, 0.25, 2, 7) == rounds
