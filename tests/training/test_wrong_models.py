"""What the trainer cannot train, told in one line before or in its first step."""

import pytest
import tiny
import torch
import transformers as hf
from torch import nn
from trainers import V, same, tokens, trainer, weights
from typed import refused

from layerscope.training import AlignedTrainer, Objective


def labelled(change):
    """Return rows of tokens whose labels are changed, or left out."""
    rows = [dict(row) for row in tokens(8)]
    for row in rows:
        labels = row.pop("labels")
        if change:
            row["labels"] = change(labels)
    return rows


DATA = {
    "label 7 is outside the head's 3 classes, 0 to 2":
        (Objective(schedule="alternate"), tiny.classifier, labelled(lambda _: torch.tensor(7))),
    f"label {V} is outside the head's {V} classes":
        (Objective("cosine"), tiny.gpt2, labelled(lambda labels: labels.clamp(min=V))),
    "every label of this batch is ignored":
        (Objective("classifiers"), tiny.gpt2, labelled(lambda labels: torch.full_like(labels, -100))),
    "labels are torch.float32: give classes":
        (Objective(), tiny.classifier, labelled(lambda _: torch.tensor(1.0))),
    "this batch has no labels": (Objective(), tiny.classifier, labelled(None)),
}  # fmt: skip


@pytest.mark.parametrize("line", DATA)
def test_labels_that_do_not_fit_are_told(tmp_path, line):
    objective, make, data = DATA[line]
    model = make()
    with refused(line):
        trainer(tmp_path, model, data, objective).train()
    untrained = weights(make())
    assert same(untrained, {name: model.state_dict()[name] for name in untrained})


def spoilt():
    model = tiny.classifier(2)
    nn.init.constant_(model.classifier.weight, torch.nan)
    return model


def swin():
    widths = {"embed_dim": 8, "depths": [1, 1, 2], "num_heads": [1, 2, 2]}
    config = hf.SwinConfig(image_size=64, window_size=4, num_labels=3, **widths)
    return hf.SwinForImageClassification(config)


def bert(kind, **options):
    config = hf.BertConfig(**tiny.COMMON, max_position_embeddings=64, **options)
    return lambda: kind(config)


ONE_CLASS, MANY = {"num_labels": 1}, {"problem_type": "multi_label_classification"}
MODELS = [
    (spoilt, "gives logits that are NaN before any training: its weights are corrupt"),
    (swin, "layers.0 is run as well as .*: name the module that holds the blocks"),
    (bert(hf.BertModel), "BertModel has no head"),
    (bert(hf.BertForQuestionAnswering), "has no head"),
    (bert(hf.BertForSequenceClassification, **ONE_CLASS), "has no head"),
    (bert(hf.BertForSequenceClassification, num_labels=3, **MANY), "no class"),
]  # fmt: skip


@pytest.mark.parametrize("make, line", MODELS)
def test_models_that_no_head_reads_are_told(make, line):
    processor = None if make is swin else tiny.tokenizer(special=True)
    with refused(line):
        AlignedTrainer(make(), processing_class=processor)
