"""A draw of labelled samples keeps classes that can be probed."""

from collections import Counter

import numpy as np

from layerscope.inputs import draw
from layerscope.inputs.corpus import Corpus


def corpus(labels, n=0):
    names = tuple(map(str, range(len(labels or range(n)))))
    return Corpus(
        "made", "text", names, names, None if labels is None else tuple(labels)
    )


def test_every_class_of_five_keeps_five_and_the_rest_is_random():
    labels = ["big"] * 900 + ["mid"] * 80 + ["small"] * 12 + ["rare"] * 3
    found = draw(corpus(labels), 100, seed=0)
    sizes = Counter(found.labels)
    assert (
        len(found) == 100
        and sizes["small"] == 5
        and 80 < sizes["big"] < 95
        and not found.notes
    )
    assert list(map(int, found.names)) == sorted(set(map(int, found.names))), (
        "in order, none twice"
    )
    assert (
        found.names
        == draw(corpus(labels), 100, seed=0).names
        != draw(corpus(labels), 100, seed=1).names
    )


def test_too_few_for_every_class_draw_whole_classes_and_say_so():
    labels = [f"class {i % 40}" for i in range(400)]
    found = draw(corpus(labels), 63, seed=0)
    assert (
        len(found) == 63
        and len(set(found.labels)) == 12
        and min(Counter(found.labels).values()) == 5
    )
    assert found.notes == (
        "the 63 samples cover 12 of 40 classes, 5 or more of each: `samples=200` would cover all",
    )


def test_what_has_no_classes_to_keep_is_drawn_as_it_comes():
    plain = np.sort(np.random.default_rng(3).choice(200, 50, replace=False))
    assert draw(corpus(None, 200), 50, seed=3).names == tuple(map(str, plain))
    assert draw(corpus([str(i) for i in range(200)]), 50, seed=3).names == tuple(
        map(str, plain)
    ), "labels are ids"
