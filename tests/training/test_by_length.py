"""Batches of texts of like lengths: every text once, in an order that follows from seed and epoch."""

from types import SimpleNamespace

import numpy as np

from layerscope.training.data import ByLength, Examples, lengths_of


def texts(n: int = 1003) -> Examples:
    lengths = np.random.default_rng(0).integers(2, 60, n)
    return Examples(
        "texts", [SimpleNamespace(ids=(1,) * length) for length in lengths], [0] * n, seed=3
    )


def by_length(examples: Examples) -> ByLength:
    return ByLength(examples, lengths_of(examples), 16)


def padded(examples: Examples, order: list[int], size: int = 16) -> int:
    lengths = np.array([len(examples.samples[i].ids) for i in order])
    return sum(
        len(part) * part.max() for part in np.split(lengths, range(size, len(lengths), size))
    )


def test_every_text_comes_once_and_little_is_padded():
    examples = texts()
    order = list(by_length(examples))
    assert sorted(order) == list(range(1003)) and len(by_length(examples)) == 1003
    real = padded(examples, order, 1)
    assert padded(examples, order) < 1.1 * real < padded(examples, list(range(1003)))


def test_an_epoch_has_one_order_and_the_next_another():
    one, two = texts(), texts()
    assert list(by_length(one)) == list(by_length(two))
    two.epoch = 1
    assert list(by_length(one)) != list(by_length(two))
    two.epoch, two.seed = 0, 4
    assert list(by_length(one)) != list(by_length(two))


def test_a_batch_is_a_mixture_and_long_texts_come_at_any_time():
    examples = texts()
    order = list(by_length(examples))[:992]
    means = [
        np.mean([len(examples.samples[i].ids) for i in order[at : at + 16]])
        for at in range(0, 992, 16)
    ]
    assert abs(np.corrcoef(means, np.arange(62))[0, 1]) < 0.3


def test_what_has_no_lengths_is_known():
    assert len(lengths_of(texts())) == 1003
    assert lengths_of(Examples("windows", [SimpleNamespace(ids=(1, 2))] * 4, None)) is None
    assert lengths_of(Examples("images", [object()] * 4, [0] * 4)) is None
