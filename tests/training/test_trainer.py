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


@torch.no_grad()
def loss_of_each_layer(model, data):
    """Return the loss of the next token that a language model has at each layer, by `output_hidden_states`."""
    ids = torch.stack([row["input_ids"] for row in data])
    states = model(ids, output_hidden_states=True).hidden_states
    norm = model.transformer.ln_f if hasattr(model, "transformer") else model.model.norm
    logits = [
        model.lm_head(state) for state in (norm(states[1]), norm(states[2]), states[3])
    ]
    return [
        cross_entropy(one[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).item()
        for one in logits
    ]


@pytest.mark.parametrize("make", [tiny.gpt2, tiny.llama], ids=["gpt2", "llama"])
def test_the_loss_of_a_step_is_that_of_its_exits(tmp_path, make):
    model, data = still(make()), tokens(4)
    one, two, last = loss_of_each_layer(model, data)
    run = trainer(tmp_path, model, data, max_steps=1)
    run.train()
    assert losses(run) == [pytest.approx((one + 2 * two + 3 * last) / 6, rel=1e-4)]


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


def test_a_run_goes_on_from_a_checkpoint_to_the_same_weights(tmp_path):
    objective = Objective(schedule="alternate")

    def run(folder, checkpoint=None, **options):
        made = trainer(
            tmp_path / folder, tiny.gpt2(), tokens(), objective, max_steps=5, **options
        )
        made.train(checkpoint)
        return weights(made.model)

    whole = run("a", save_strategy="steps", save_steps=3)
    assert same(run("b", str(tmp_path / "a" / "checkpoint-3")), whole)


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


class Evaluating(hf.TrainerCallback):
    """Asks for an evaluation after every step."""

    times = 0

    def on_step_end(self, args, state, control, **_):
        control.should_evaluate = True
        return control

    def on_evaluate(self, *_, **__):
        self.times += 1


def test_how_often_a_model_is_evaluated_does_not_change_its_weights(tmp_path):
    often, trained = Evaluating(), []
    for callbacks in ([often], []):
        model = tiny.gpt2()
        assert any(isinstance(m, nn.Dropout) and m.p > 0 for m in model.modules())
        run = trainer(
            tmp_path, model, tokens(), callbacks=callbacks, eval_dataset=tokens(6)
        )
        run.train()
        trained.append(weights(model))
    assert same(*trained) and often.times == 4


@pytest.mark.parametrize(
    "make", [tiny.gpt2, tiny.classifier], ids=["tokens", "classes"]
)
def test_accumulated_batches_are_one_batch(tmp_path, make):
    data = tokens() if make is tiny.gpt2 else classes()
    how = {"max_steps": 2, "optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0.0}
    trained = []
    for size, parts in ((8, 1), (2, 4)):
        batches = {
            "per_device_train_batch_size": size,
            "gradient_accumulation_steps": parts,
        }
        run = trainer(tmp_path, still(make()), data, **how, **batches)
        run.train()
        trained.append(weights(run.model))
    assert same(*trained, tolerance=1e-5) and not same(
        trained[0], weights(make()), tolerance=1e-4
    )
