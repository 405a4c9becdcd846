"""What is done to images before a model learns from them, or is judged on others."""

import numpy as np
import pytest

from layerscope_papers import images
from layerscope_papers.tracing import transfer


def pixels(corpus):
    return np.stack([np.asarray(image, float) for image in corpus.samples])


def test_images_are_changed_alike_each_time():
    _, whole = images.images("digits", None)
    corpus = whole.take(range(8))
    before = pixels(corpus)
    noisy, faded, moved = (
        pixels(images.changed(corpus, change)) for change in transfer.SHIFTS.values()
    )
    assert 15 < np.abs(noisy - before).mean() < 45
    assert (noisy[..., 0] == noisy[..., 1]).all()
    assert faded.std() == pytest.approx(before.std() / 2, rel=0.05)
    assert (moved[:, :, 1:] == before[:, :, :-1]).all() and not moved[:, :, 0].any()


def test_images_are_learnt_from_at_nine_places():
    training, _ = images.images("digits", None)
    two = training.take(range(2))
    moved, (_, whole) = images.shifted(two), pixels(two)
    assert len(moved) == 18 and moved.labels[9:] == (training.labels[1],) * 9
    first, *_, middle = pixels(moved)[9:14]
    assert (middle == whole).all()
    assert (first[:-1, :-1] == whole[1:, 1:]).all() and not first[-1].any()
