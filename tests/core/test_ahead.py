"""The next batch is made beside the work on this one, never more, and errors come in their place."""

import threading

import pytest

from layerscope.core.prefetch import ahead


def test_the_next_one_is_made_while_this_one_is_worked_on():
    second_begun, seen = threading.Event(), []

    def make(item):
        if item == 1:
            second_begun.set()
        return 10 * item

    for item, made in ahead(make, range(3)):
        if item == 0:
            assert second_begun.wait(10), (
                "nothing is made of the second while the first is worked on"
            )
        seen.append((item, made))
    assert seen == [(0, 0), (1, 10), (2, 20)]


def test_an_error_comes_in_its_place():
    made = ahead(lambda item: 1 // item, [2, 1, 0, 3])
    assert [next(made), next(made)] == [(2, 0), (1, 1)]
    with pytest.raises(ZeroDivisionError):
        next(made)
