"""The trainer: its steps, its accumulation, its resuming, on real (tiny) models of tokens and classes."""

import pytest
import tiny
import torch
import transformers as hf
from torch import nn
from torch.nn.functional import cross_entropy
from trainers import classes, losses, same, still, tokens, trainer, weights

from layerscope.training.objectives import Objective
from layerscope.training.trainer import AlignedTrainer


def test_the_loss_of_a_step_is_that_of_its_exits(tmp_path):
    model, data = still(tiny.gpt2()), tokens(4)
    ids = torch.stack([row["input_ids"] for row in data])
    with torch.no_grad():
        _, *states, last = model(ids, output_hidden_states=True).hidden_states
    read = [*map(model.transformer.ln_f, states), last]
    logits = [model.lm_head(state[:, :-1]).flatten(0, 1) for state in read]
    one, two, three = (cross_entropy(each, ids[:, 1:].flatten()) for each in logits)
    run = trainer(tmp_path, model, data, max_steps=1)
    run.train()
    wanted = (one + 2 * two + 3 * three) / 6
    assert losses(run) == [pytest.approx(wanted.item(), rel=1e-4)]


def test_odd_steps_of_alternate_are_the_models_own(tmp_path):
    objective, steps = Objective(schedule="alternate"), []
    run = trainer(
        tmp_path, tiny.classifier(), classes(), objective, gradient_accumulation_steps=2
    )
    loss = objective.loss

    def counted(*args, **options):
        steps.append(run.state.global_step + 1)
        return loss(*args, **options)

    object.__setattr__(objective, "loss", counted)
    run.train()
    assert steps == [2, 2, 4, 4]


@pytest.mark.parametrize("name", ["standard", "cka", "classifiers"])
def test_every_objective_trains_and_leaves_a_standard_checkpoint(tmp_path, name):
    how = {"max_steps": 25, "per_device_train_batch_size": 8, "learning_rate": 3e-3}
    run = trainer(tmp_path, tiny.classifier(), classes(8), name, **how)
    run.train()
    assert losses(run)[-1] < 0.7 * losses(run)[0]
    run.exit_loss.detach()
    run.save_model(str(tmp_path / "model"))
    loaded = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert same(weights(loaded), weights(run.model))


def test_it_is_called_as_the_trainer_of_transformers_is(tmp_path):
    text, data = tiny.tokenizer(special=True), classes(8)
    args = hf.TrainingArguments(str(tmp_path), max_steps=2, use_cpu=True, report_to="none",
                                per_device_train_batch_size=4, save_strategy="no")  # fmt: skip
    run = AlignedTrainer(
        tiny.classifier(), args, hf.default_data_collator, data, data, text
    )
    run.train()
    assert run.exit_loss.module is run.model
    assert "eval_accuracy_layer_1" in run.evaluate()
    assert not same(weights(run.model), weights(tiny.classifier()))
    bare = AlignedTrainer(tiny.classifier(), args)
    assert bare.processing_class is None and bare.layered.stack.depth, (
        "ids need no tokenizer"
    )


def test_how_often_a_model_is_evaluated_does_not_change_its_weights(tmp_path):
    evaluations, trained = [], []
    for how in ({}, {"eval_strategy": "steps", "eval_steps": 1}):
        model = tiny.gpt2()
        assert any(isinstance(m, nn.Dropout) and m.p > 0 for m in model.modules())
        run = trainer(tmp_path, model, tokens(), eval_dataset=tokens(6), **how)
        run.train()
        trained.append(weights(model))
        evaluations.append(sum("eval_loss" in log for log in run.state.log_history))
    assert same(*trained) and evaluations == [0, 4]


@pytest.mark.parametrize(
    "make, rows", [(tiny.gpt2, tokens), (tiny.classifier, classes)]
)
def test_accumulated_batches_are_one_batch(tmp_path, make, rows):
    how = {"max_steps": 2, "optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0.0}
    trained = []
    for size, parts in ((8, 1), (2, 4)):
        how |= {
            "per_device_train_batch_size": size,
            "gradient_accumulation_steps": parts,
        }
        run = trainer(tmp_path, still(make()), rows(), **how)
        run.train()
        trained.append(weights(run.model))
    assert same(*trained, tolerance=1e-5)
    assert not same(trained[0], weights(make()), tolerance=1e-4)
