"""Presets are what the papers print, what is given beside them wins, and a task decides the rest."""

from pathlib import Path
from typing import Any

import pytest

import layerscope
from layerscope.core.options import checked
from layerscope.training.options import (
    PRESETS,
    TrainOptions,
    settings_for,
    with_preset,
)


def options(**given: Any) -> TrainOptions:
    call = {
        "model": "bert",
        "train": "texts.csv",
        "out": Path("out"),
        "settings": given,
    }
    for name in ("preset", "from_config"):
        if name in given:
            call[name] = given.pop(name)
    return checked(layerscope.train, with_preset(call), TrainOptions)


PRINTED = {
    "tracing-glue": {
        "learning_rate": 2e-5,
        "batch_size": 32,
        "epochs": 3,
        "schedule": "always",
    },
    "tracing-gpt2": {
        "learning_rate": 2e-5,
        "batch_size": 8,
        "max_steps": 40_000,
        "max_length": 256,
    },
    "tracing-deit": {
        "batch_size": 256,
        "epochs": 200,
        "weight_decay": 1e-4,
        "scheduler": "multistep",
    },
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_sets_what_is_printed_and_what_is_given_beats_it(name: str):
    settings = options(preset=name).settings
    assert PRINTED[name].items() <= vars(settings).items()
    assert PRESETS[name].items() <= vars(settings).items()
    changed = options(preset=name, batch_size=7, epochs=3, head="mean").settings
    assert (changed.batch_size, changed.epochs, changed.head) == (7, 3, "mean")


def test_schedules_and_rates_that_the_task_decides():
    image, text = (
        settings_for(task, options(from_config=True))
        for task in ("image-classification", "causal-lm")
    )
    assert (image.schedule, text.schedule) == ("alternate", "always")
    always = settings_for("image-classification", options(schedule="always"))
    assert always.schedule == "always" and always.learning_rate < image.learning_rate
