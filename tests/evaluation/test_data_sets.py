"""Tasks made of data sets of `datasets`, as of frames; what is said of classes that a target lacks, and near names."""

import math

import pandas as pd
import pytest
import tiny
from datasets import Dataset
from frames import scored

import layerscope
from layerscope.evaluation.tasks import open_tasks
from layerscope.scores import Evaluation
from layerscope.scores.shifts import error_of_gain, rights_of

LABELLED = pd.DataFrame({"text": tiny.texts(40), "label": ["a", "b"] * 20})
PAIRED = pd.DataFrame(
    {"text_a": tiny.texts(9), "text_b": tiny.texts(9, seed=1), "score": range(9)}
)


@pytest.mark.parametrize(
    ("kind", "frame"),
    [("classification", LABELLED), ("clustering", LABELLED), ("sts", PAIRED)],
)
def test_a_data_set_makes_the_task_that_its_frame_makes(kind, frame):
    (made,), (wanted,) = (
        open_tasks({kind: data})[0] for data in (Dataset.from_pandas(frame), frame)
    )
    assert made.metadata.dataset["revision"] == wanted.metadata.dataset["revision"]
    assert made.dataset["test"].to_pandas().equals(wanted.dataset["test"].to_pandas())


def test_a_target_without_most_classes_is_noted(tmp_path):
    source = pd.DataFrame({"text": tiny.texts(50), "label": [*"abcde"] * 10})
    for classes, noted in (("ab", True), ("abc", False)):
        target = pd.DataFrame(
            {
                "text": tiny.texts(30, seed=2),
                "label": [classes[i % len(classes)] for i in range(30)],
            }
        )
        _, (_, shifted) = open_tasks({"linear-probe": source}, shift=target)
        found = [note for note in shifted.shift.notes if "cover only these" in note]
        assert bool(found) == noted
        assert not noted or "has 2 of the 5 classes of" in found[0]


def test_the_headline_has_the_error_of_its_difference():
    """Of one task it is paired over the samples; of three over the tasks, as select judges them."""
    texts = pd.DataFrame(
        {
            "text": [f"w{i % 7} {text}" for i, text in enumerate(tiny.texts(70))],
            "label": [*"abcdefg"] * 10,
        }
    )
    model = tiny.bert()
    model.config._name_or_path = "tiny"
    found = layerscope.evaluate(
        model,
        {"linear-probe": texts},
        processor=tiny.tokenizer(special=True),
        progress=False,
    )
    best = int(found.summary()["best_layer"].iloc[0])
    grid = found.grids()[0]
    (right,) = rights_of(grid).values()
    apart = right[best] - right[None]
    assert error_of_gain(grid, best, None) == pytest.approx(
        apart.std(ddof=1) / len(apart) ** 0.5
    )
    answer = found.document().answer
    assert (
        apart.any()
        and answer.count("±") == 2
        and "points against the model as shipped" in answer
    )
    gains = [0.1, 0.2, 0.6]
    rows = scored(
        {task: [0.1, 0.2 + gain, 0.2] for task, gain in zip("abc", gains, strict=True)}
    )
    assert error_of_gain(Evaluation(rows).grids()[0], 1, 2) == pytest.approx(
        pd.Series(gains).sem()
    )
    two = Evaluation(rows[rows["task"] != "c"])
    assert (
        math.isnan(error_of_gain(two.grids()[0], 1, 2))
        and "±" not in two.document().answer
    )
