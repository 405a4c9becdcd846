"""Presets are what the paper prints, and what is given beside them wins."""

import numpy as np
import pytest
from PIL import Image

from layerscope import LayerscopeError
from layerscope.core.options import Asked
from layerscope.training.data import augmented
from layerscope.training.verb import described, settings_of


def test_presets_have_the_printed_settings():
    glue, gpt2, deit = (
        settings_of({}, name) for name in ("tracing-glue", "tracing-gpt2", "tracing-deit")
    )
    assert (glue.learning_rate, glue.batch_size, glue.epochs, glue.max_length) == (2e-5, 32, 3, 256)
    assert (gpt2.learning_rate, gpt2.batch_size, gpt2.max_steps, gpt2.max_length) == (
        2e-5,
        8,
        40_000,
        256,
    )
    assert glue.head == "own" and settings_of({"head": "mean"}, "tracing-glue").head == "mean"
    assert (glue.schedule, gpt2.schedule, deit.schedule) == ("always", "always", "alternate")
    assert (deit.batch_size, deit.epochs, deit.weight_decay, deit.scheduler) == (
        256,
        200,
        1e-4,
        "multistep",
    )
    assert deit.augment
    assert (
        deit.learning_rate != settings_of({}, "tracing-deit", as_printed=True).learning_rate == 0.1
    )


def test_the_preset_of_layerskip_has_the_printed_settings():
    found = settings_of({}, "layerskip")
    assert (found.objective, found.schedule, found.weights, found.task) == (
        "aligned",
        "rotating",
        "layerskip",
        "causal-lm",
    )
    assert (found.beta, found.layer_dropout, found.rotation) == (0.2, 0.1, None)
    assert settings_of({"layer_dropout": 0.2, "rotation": 8}, "layerskip").rotation == 8


def test_what_is_given_beats_the_preset():
    found = settings_of(
        {"epochs": 2, "schedule": "always", "batch_size": None}, "tracing-deit", as_printed=True
    )
    assert (found.epochs, found.schedule, found.batch_size) == (2, "always", 256)
    line = described("tracing-deit", {"epochs": 2}, as_printed=False)
    assert line.startswith(
        "preset tracing-deit: task image-classification, schedule alternate, learning_rate 0.0005, "
    )
    assert "epochs" not in line
    assert line.endswith("(the paper prints learning_rate 0.1: see `as_printed=True`)")


def test_schedules_and_rates_that_the_task_decides():
    image, text = (
        settings_of({}).decided(task, Asked(from_config=True))
        for task in ("image-classification", "causal-lm")
    )
    assert (image.schedule, text.schedule) == ("alternate", "always")
    assert (
        settings_of({"schedule": "always"})
        .decided("image-classification", Asked(from_config=False))
        .schedule
        == "always"
    )
    assert (
        text.learning_rate
        > settings_of({}).decided("causal-lm", Asked(from_config=False)).learning_rate
    )


def test_as_printed_needs_a_preset():
    with pytest.raises(LayerscopeError, match="`as_printed=True` needs a preset"):
        settings_of({}, as_printed=True)


def test_images_are_shifted_flipped_and_turned_by_their_seed_alone():
    pixels = np.zeros((32, 32, 3), np.uint8)
    pixels[12:20, 4:8] = 255
    image = Image.fromarray(pixels)
    many = [np.asarray(augmented(image, np.random.default_rng(seed))) for seed in range(200)]
    assert {found.shape for found in many} == {(32, 32, 3)}
    assert np.array_equal(many[7], np.asarray(augmented(image, np.random.default_rng(7))))
    centres = np.array([np.argwhere(found[..., 0] > 127).mean(0) for found in many])
    flipped = centres[:, 1] > 15.5
    assert 70 < flipped.sum() < 130
    across = np.where(flipped, 31 - centres[:, 1], centres[:, 1]) - 5.5
    down = centres[:, 0] - 15.5
    assert 3 < np.abs(across).max() < 6  # 4 pixels, and a little by the rotation
    assert 4 < np.abs(down).max() < 8
