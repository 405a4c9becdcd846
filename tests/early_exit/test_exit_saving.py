"""Exit models saved and loaded, and what is refused: other weights, models without exits, thresholds, batches."""

import copy
import math
from dataclasses import replace
from functools import partial

import pytest
import torch
import transformers as hf
from classifiers import batch_for, plain, validation
from models import zoo
from tiny import classifier, saved, texts, tokenizer
from typed import refused

from layerscope.early_exit import ExitModel
from layerscope.early_exit.calibration import calibrate_recorded
from layerscope.early_exit.options import Goal
from layerscope.early_exit.validation import record_all


def test_nan_logits_name_the_layer(bert):
    model = copy.deepcopy(bert)
    inputs = batch_for(model, 3)
    with torch.no_grad():
        model.model.bert.encoder.layer[1].output.dense.bias.fill_(float("nan"))
    with refused("^layer 2 gives logits that are NaN"):
        model.leave((1, 2), 0.999)(**inputs.named)
    with refused("^this model gives logits that are NaN"):
        model.leave((1,), 0.999)(**inputs.named)
    early = model.leave((1,), 0.0)(**inputs.named)
    assert bool(early.logits.isfinite().all()), "rows leave before the broken layer"


def test_saved_and_loaded(tmp_path):
    folder = saved(classifier(), tmp_path / "plain")
    model = ExitModel(folder)
    corpus = texts(400, seed=1)
    encoder = model.layered.encoder
    recorded = record_all(model, validation(model, corpus), 50)
    made = calibrate_recorded(recorded, (1, 2), Goal(max_disagreement=0.9))
    made = replace(made, fingerprint=model.fingerprint(), dtype="float32")
    model.use(made).save_pretrained(tmp_path / "exits")
    again = ExitModel.from_pretrained(tmp_path / "exits")
    assert (again.exits, again.threshold) == ((1, 2), made.threshold)
    assert again.calibration == made
    inputs = encoder.batch(corpus[:20])
    assert torch.equal(again(**inputs.named).logits, model(**inputs.named).logits)
    assert set(again(**inputs.named).exit_layer.tolist()) & {1, 2}
    whole = hf.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "exits"
    ).eval()
    assert torch.equal(plain(whole, inputs), plain(model.model, inputs))
    half = ExitModel.from_pretrained(tmp_path / "exits", dtype="bfloat16")
    assert half.threshold == made.threshold and half.model.dtype == torch.bfloat16
    assert half.calibration is None, (
        "what was certified in float32 is not for other predictions"
    )
    with refused("in float32, and exits runs in bfloat16"):
        half.use(made)

    with refused(r"holds no exit model \(early_exit.json\)"):
        ExitModel.from_pretrained(folder)
    other = ExitModel(saved(classifier(seed=1), tmp_path / "other"))
    with refused("is of other weights than other's"):
        other.use(made)
    other.model.save_pretrained(tmp_path / "exits")
    with refused("are of other weights than lie there"):
        ExitModel.from_pretrained(tmp_path / "exits")
    kept = (tmp_path / "exits" / "early_exit.json").read_text()
    for text, why in (
        ("{", "is damaged"),
        (kept.replace("0.9", "0.8"), "has changed since it was written"),
    ):
        (tmp_path / "exits" / "early_exit.json").write_text(text)
        with refused(f"{why}.*: run layerscope exits"):
            ExitModel.from_pretrained(tmp_path / "exits")


def _regression():
    how = {"problem_type": "multi_label_classification", "num_labels": 3}
    return zoo.seeded("BertForSequenceClassification", **how)


HEADLESS = [
    (
        partial(zoo.of_class, "BertModel"),
        "BertModel has no head of classes over its model: give a classifier",
    ),
    (
        partial(zoo.of_class, "BertForTokenClassification"),
        "BertForTokenClassification predicts tokens: give a model with one row of classes for each sample",
    ),
    (
        _regression,
        "BertForSequenceClassification is made for multi_label_classification: exits need classes of which one is "
        "right",
    ),
]


@pytest.mark.parametrize("make, line", HEADLESS)
def test_models_that_have_no_exits(make, line):
    with refused(f"^{line}$"):
        ExitModel(make().eval(), processor=tokenizer(special=True))


STEPS = [
    ({"exits": (9,)}, "exit 9 does not exist: give layers from 1 on, before the last of 4"),
    ({"exits": (1, 1)}, r"exits \[1, 1\] name a layer twice: name each once"),
    ({"threshold": 1.5}, "threshold is 1.5: give a number from 0 to 1, or infinity for never"),
    ({"threshold": math.nan}, "threshold is nan: give a number from 0 to 1, or infinity for never"),
]  # fmt: skip


@pytest.mark.parametrize("options, line", STEPS)
def test_exits_and_thresholds_that_do_not_exist(options, line, bert):
    with refused(f"^{line}$"):
        bert.leave(**options)


def test_batches_that_cannot_be_run(bert):
    model = bert.leave((1,), 0.5)
    with refused(
        "^no tensor was given: call it as BertForSequenceClassification is called"
    ):
        model()
    with refused("^output_hidden_states: rows leave at different layers, call .model"):
        model(input_ids=torch.ones(2, 3, dtype=torch.long), output_hidden_states=True)
