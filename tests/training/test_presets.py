"""What a task decides of the settings that are not given."""

from pathlib import Path

import layerscope
from layerscope.core.options import checked
from layerscope.training.options import TrainOptions, settings_for


def options(**given):
    call = {"model": "bert", "train": "texts.csv", "out": Path("out"), **given}
    return checked(layerscope.train, call, TrainOptions)


def test_schedules_and_rates_that_the_task_decides():
    image, text = (
        settings_for(task, options(from_config=True))
        for task in ("image-classification", "causal-lm")
    )
    assert (image.schedule, text.schedule) == ("alternate", "always")
    always = settings_for("image-classification", options(schedule="always"))
    assert always.schedule == "always" and always.learning_rate < image.learning_rate
