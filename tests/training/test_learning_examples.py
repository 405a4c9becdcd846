"""Examples of a training: batches of texts of like lengths, and images that are changed by their seed alone."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from layerscope.models.encode import ImageEncoder
from layerscope.training import examples as learnt
from layerscope.training.examples import (
    ByLength,
    Examples,
    augmented,
    by_name,
    made_once,
)

exactly = partial(torch.testing.assert_close, rtol=0, atol=0)


def texts(epoch=0, seed=3):
    lengths = np.random.default_rng(0).integers(2, 60, 1003)
    samples = [SimpleNamespace(ids=(1,) * length) for length in lengths]
    examples = Examples("texts", samples, [0] * 1003, seed)
    examples.epoch = epoch
    return examples


def order(examples):
    return list(ByLength(examples, examples.lengths(), 16))


def test_every_text_comes_once_and_little_is_padded():
    examples, found = texts(), order(texts())
    lengths = examples.lengths()

    def padded(rows):
        parts = np.split(lengths[rows], range(16, len(rows), 16))
        return sum(len(part) * part.max() for part in parts)

    assert sorted(found) == list(range(1003))
    assert padded(found) < 1.1 * lengths.sum() < padded(list(range(1003)))
    means = [lengths[found[at : at + 16]].mean() for at in range(0, 992, 16)]
    assert abs(np.corrcoef(means, np.arange(62))[0, 1]) < 0.3, (
        "long texts come at any time"
    )


def test_images_are_shifted_flipped_and_turned_by_their_seed_alone():
    pixels = np.zeros((32, 32, 3), np.uint8)
    pixels[12:20, 4:8] = 255
    image = Image.fromarray(pixels)

    def changed(seed):
        return np.asarray(augmented(image, np.random.default_rng(seed)))

    many = [*map(changed, range(200))]
    assert np.array_equal(many[7], changed(7))
    centres = np.array([np.argwhere(found[..., 0] > 127).mean(0) for found in many])
    flipped = centres[:, 1] > 15.5
    assert 70 < flipped.sum() < 130
    across = np.where(flipped, 31 - centres[:, 1], centres[:, 1]) - 5.5
    assert 3 < np.abs(across).max() < 6, "4 pixels, and a little by the rotation"
    assert 4 < np.abs(centres[:, 0] - 15.5).max() < 8


@pytest.mark.parametrize("module", [torch.nn.Conv2d(3, 1, 1), torch.nn.Identity()])
def test_small_images_are_read_once_and_large_ones_batch_by_batch(module, monkeypatch):
    if isinstance(module, torch.nn.Identity):
        module.main_input_name = "pixel_values"
    module.config = SimpleNamespace(image_size=8)
    encoder = ImageEncoder(None, module)
    pixels = np.random.default_rng(0).integers(0, 256, (70, 9, 7, 3), np.uint8)
    images = [*map(Image.fromarray, pixels)]
    halves = images[:66], images[66:]
    parts, batch = made_once(halves, encoder)
    assert [*map(len, parts)] == [66, 4]
    for rows, read in ((parts[0][60:66], images[60:66]), (parts[1], images[66:])):
        exactly(by_name(batch(rows)), by_name(encoder.batch(read)))
    monkeypatch.setattr(learnt, "IN_MEMORY", 69 * 3 * 8 * 8 * 4)
    assert made_once(halves, encoder)[1] == encoder.batch
