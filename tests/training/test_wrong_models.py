"""What the trainer cannot train, told in one line before or in its first step."""

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers as hf
from test_trainer import V, classes, tokens, trainer
from tiny import one_thread
from torch import nn

from layerscope import LayerscopeError
from layerscope.training import AlignedTrainer, Objective

__all__ = ["one_thread"]
OBJECTIVES = [
    *map(Objective, ("standard", "aligned", "cosine", "cka", "classifiers")),
    Objective(schedule="alternate"),
]


def told(
    folder: Path, model: nn.Module, data: list[dict[str, Any]], objective: Objective, line: str
) -> None:
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(LayerscopeError, match=line) as error:
        trainer(folder, model, data, objective, max_steps=2).train()
    assert "\n" not in str(error.value)
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in before.items())


def test_a_model_whose_weights_are_spoilt_is_told():
    model = tiny.classifier(2)
    torch.nn.init.constant_(model.classifier.weight, torch.nan)
    with pytest.raises(
        LayerscopeError,
        match="gives logits that are NaN before any training: its weights are corrupt",
    ):
        AlignedTrainer(model, processing_class=tiny.tokenizer(special=True))


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_labels_that_do_not_fit_are_told_by_every_objective(tmp_path: Path, objective: Objective):
    rows, text = classes(8), tokens(8)
    outside = [{**row, "labels": torch.tensor(7)} for row in rows]
    told(
        tmp_path,
        tiny.classifier(),
        outside,
        objective,
        "label 7 is outside the head's 3 classes, 0 to 2",
    )
    beyond = [{**row, "labels": row["labels"].clamp(min=V)} for row in text]
    told(tmp_path, tiny.gpt2(), beyond, objective, f"label {V} is outside the head's {V} classes")
    ignored = [{**row, "labels": torch.full_like(row["labels"], -100)} for row in text]
    told(tmp_path, tiny.gpt2(), ignored, objective, "every label of this batch is ignored")
    floats = [{**row, "labels": torch.tensor(1.0)} for row in rows]
    told(tmp_path, tiny.classifier(), floats, objective, "labels are torch.float32: give classes")


def test_a_batch_without_labels_is_told(tmp_path: Path):
    bare = [{key: value for key, value in row.items() if key != "labels"} for row in classes(8)]
    told(tmp_path, tiny.classifier(), bare, Objective(), "this batch has no labels")


def test_layers_of_several_widths_are_told_by_name(tmp_path: Path):
    widths = {"embed_dim": 8, "depths": [1, 1, 2], "num_heads": [1, 2, 2], "window_size": 4}
    model = tiny.seeded(
        hf.SwinForImageClassification, hf.SwinConfig(image_size=64, num_labels=3, **widths)
    )
    args = hf.TrainingArguments(str(tmp_path), use_cpu=True, report_to="none")
    line = r"layers of this model differ in width, stage-1 \(1 layer of 8\), .* one head reads layers of one width"
    with pytest.raises(LayerscopeError, match=line):
        AlignedTrainer(model, args=args)


@pytest.mark.parametrize(
    ("kind", "options", "line"),
    [
        (hf.BertModel, {}, "BertModel has no head"),
        (hf.BertForSequenceClassification, {"num_labels": 1}, "has no head"),
        (hf.BertForQuestionAnswering, {}, "has no head"),
        (
            hf.BertForSequenceClassification,
            {"num_labels": 3, "problem_type": "multi_label_classification"},
            "no class",
        ),
    ],
)
def test_models_that_predict_no_class_are_told(
    tmp_path: Path, kind: Any, options: dict[str, Any], line: str
):
    model = kind(hf.BertConfig(**tiny.COMMON, max_position_embeddings=64, **options))
    with pytest.raises(LayerscopeError, match=line):
        trainer(tmp_path, model, classes())
