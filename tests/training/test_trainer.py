"""The trainer: its steps, its accumulation, its resuming, on real (tiny) models of tokens and classes."""

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers as hf
from tiny import one_thread
from torch import nn

from layerscope import LayerscopeError
from layerscope.training.objectives import Objective
from layerscope.training.trainer import AlignedTrainer

__all__ = ["one_thread"]
V = tiny.COMMON["vocab_size"]


def tokens(n: int = 16, length: int = 12) -> list[dict[str, Any]]:
    rows = torch.randint(4, V, (n, length), generator=torch.Generator().manual_seed(0))
    # the first token is predicted by none, and the Trainer counts it as an item all the same
    labels = torch.cat([torch.full((n, 1), -100), rows[:, 1:]], 1)
    return [
        {"input_ids": row, "attention_mask": torch.ones_like(row), "labels": own}
        for row, own in zip(rows, labels, strict=True)
    ]


def classes(n: int = 16) -> list[dict[str, Any]]:
    return [{**row, "labels": torch.tensor(i % 3)} for i, row in enumerate(tokens(n))]


def trainer(
    folder: Path, model: nn.Module, data: list, objective: Any = "aligned", **options: Any
) -> AlignedTrainer:
    callbacks = options.pop("callbacks", None)
    options = {"max_steps": 4, "per_device_train_batch_size": 4, "learning_rate": 1e-2} | options
    args = hf.TrainingArguments(
        str(folder),
        report_to="none",
        disable_tqdm=True,
        logging_steps=1,
        use_cpu=True,
        save_strategy="no",
        **options,
    )
    text = tiny.tokenizer(special=not isinstance(model, hf.GPT2LMHeadModel))
    return AlignedTrainer(
        model,
        objective=objective,
        args=args,
        train_dataset=data,
        processing_class=text,
        data_collator=hf.default_data_collator,
        callbacks=callbacks,
    )


class Evaluating(hf.TrainerCallback):
    """Asks for an evaluation after every step."""

    times = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        control.should_evaluate = True
        return control

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        self.times += 1


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one: dict, two: dict, tolerance: float = 0.0) -> bool:
    return one.keys() == two.keys() and all(
        torch.allclose(one[k], two[k], rtol=0, atol=tolerance) for k in one
    )


def test_the_loss_of_a_step_is_that_of_its_exits(tmp_path: Path):
    model, data = tiny.gpt2(), tokens(4)
    ids = torch.stack([row["input_ids"] for row in data])
    with torch.no_grad():
        states = model(ids, output_hidden_states=True).hidden_states
        logits = [
            model.lm_head(model.transformer.ln_f(states[1])),
            model.lm_head(model.transformer.ln_f(states[2])),
        ]
        logits.append(model.lm_head(states[3]))
        wanted = sum(
            layer / 6 * nn.functional.cross_entropy(one[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
            for layer, one in enumerate(logits, start=1)
        )
    for dropout in (m for m in model.modules() if isinstance(m, nn.Dropout)):
        dropout.p = 0.0
    run = trainer(tmp_path, model, data, max_steps=1)
    run.train()
    assert run.state.log_history[0]["loss"] == pytest.approx(wanted.item(), rel=1e-4)


@pytest.mark.parametrize("make", [tiny.gpt2, tiny.llama], ids=["gpt2", "llama"])
def test_the_steps_of_layerskip_rotate_over_the_exits(tmp_path: Path, make):
    model, data = make(), tokens(4)
    for dropout in (m for m in model.modules() if isinstance(m, nn.Dropout)):
        dropout.p = 0.0
    ids = torch.stack([row["input_ids"] for row in data])
    with torch.no_grad():
        states = model(ids, output_hidden_states=True).hidden_states
        norm = model.transformer.ln_f if make is tiny.gpt2 else model.model.norm
        logits = [
            model.lm_head(norm(states[1])),
            model.lm_head(norm(states[2])),
            model.lm_head(states[3]),
        ]
        one, two, last = (
            nn.functional.cross_entropy(each[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).item()
            for each in logits
        )
    objective = Objective(schedule="rotating", weights="layerskip", beta=0.5)
    run = trainer(tmp_path, model, data, objective, max_steps=3, learning_rate=0.0)
    run.train()
    found = [entry["loss"] for entry in run.state.log_history if "loss" in entry]
    # e(0) = 0, e(1) = 0.5, e(2) = 2 + 0.5: the first exit weighs nothing, the second a sixth
    assert found == pytest.approx([last, (0.5 * two + 2.5 * last) / 3, last], rel=1e-4)
    assert last != pytest.approx(one, rel=1e-3) and last != pytest.approx(two, rel=1e-3)


@pytest.mark.parametrize("make", [tiny.gpt2, tiny.classifier], ids=["tokens", "classes"])
def test_accumulated_batches_are_one_batch(tmp_path: Path, make):
    found = []
    for size, steps in ((8, 1), (2, 4)):
        model = make()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        data = tokens() if make is tiny.gpt2 else classes()
        trainer(
            tmp_path,
            model,
            data,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=steps,
            max_steps=2,
            optim="sgd",
            learning_rate=0.1,
            max_grad_norm=0.0,
        ).train()
        found.append(weights(model))
    assert same(*found, tolerance=1e-5) and not same(found[0], weights(make()), tolerance=1e-4)


def test_odd_steps_of_alternate_are_the_models_own(tmp_path: Path):
    objective, asked = Objective(schedule="alternate"), []
    run = trainer(
        tmp_path,
        tiny.classifier(),
        classes(),
        objective,
        gradient_accumulation_steps=2,
        max_steps=4,
    )
    own = run.objective.loss
    object.__setattr__(
        run.objective,
        "loss",
        lambda *a, **k: asked.append(run.state.global_step + 1) or own(*a, **k),
    )
    run.train()
    assert asked == [2, 2, 4, 4]


def test_a_run_goes_on_from_a_checkpoint_to_the_same_weights(tmp_path: Path):
    objective = Objective(schedule="alternate")
    whole = tiny.gpt2()
    trainer(tmp_path / "a", whole, tokens(), objective, max_steps=5).train()
    first = trainer(tmp_path / "b", tiny.gpt2(), tokens(), objective, max_steps=5)
    first.args.save_strategy, first.args.save_steps = hf.IntervalStrategy.STEPS, 3
    first.train()
    again = tiny.gpt2()
    trainer(tmp_path / "b", again, tokens(), objective, max_steps=5).train(
        str(tmp_path / "b" / "checkpoint-3")
    )
    assert same(weights(again), weights(whole))


@pytest.mark.parametrize("name", ["standard", "aligned", "cosine", "cka", "classifiers"])
def test_every_objective_trains_and_leaves_a_standard_checkpoint(tmp_path: Path, name: str):
    model = tiny.classifier()
    run = trainer(
        tmp_path,
        model,
        classes(8),
        name,
        max_steps=25,
        per_device_train_batch_size=8,
        learning_rate=3e-3,
    )
    run.train()
    losses = [entry["loss"] for entry in run.state.log_history if "loss" in entry]
    assert losses[-1] < 0.7 * losses[0]
    run.exit_loss.detach()
    run.save_model(str(tmp_path / "model"))
    loaded = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert same(weights(loaded), weights(model))


def test_wrong_objectives_are_told(tmp_path: Path):
    with pytest.raises(
        LayerscopeError, match="objective 'alined' does not exist, did you mean aligned"
    ):
        Objective("alined")
    with pytest.raises(LayerscopeError, match="schedule 'even' does not exist"):
        Objective(schedule="even")
    with pytest.raises(LayerscopeError, match="beta is -1"):
        Objective("cosine", beta=-1)
    bare = hf.BertModel(hf.BertConfig(**tiny.COMMON, max_position_embeddings=64))
    with pytest.raises(LayerscopeError, match="has no head"):
        trainer(tmp_path, bare, classes())


def test_it_is_called_as_the_trainer_of_transformers_is(tmp_path: Path):
    text, data = tiny.tokenizer(special=True), classes(8)

    def made() -> nn.Module:
        return tiny.classifier()

    def run(folder: str, *model: Any, **options: Any) -> None:
        args = hf.TrainingArguments(
            str(tmp_path / folder),
            max_steps=2,
            per_device_train_batch_size=4,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            save_strategy="no",
        )
        found = AlignedTrainer(
            *model or (None,), args, hf.default_data_collator, data, data, text, **options
        )
        first = found.model
        found.train()
        assert (found.model is first) is bool(
            model
        )  # model_init is called again at the start of a training
        assert found.exit_loss.module is found.model
        assert "eval_accuracy_layer_1" in found.evaluate()
        assert not same(weights(found.model), weights(made()))

    run("model", tiny.classifier())
    run("init", model_init=made)
    for wrong in ({}, {"model": made(), "model_init": made}):
        with pytest.raises(LayerscopeError, match="either a model or model_init: give one of them"):
            AlignedTrainer(**wrong)
    bare = AlignedTrainer(
        made(), hf.TrainingArguments(str(tmp_path / "bare"), use_cpu=True, report_to="none")
    )
    assert bare.processing_class is None and bare.layered.stack.depth, (
        "rows of ids need no tokenizer"
    )


def test_how_often_a_model_is_evaluated_does_not_change_its_weights(tmp_path: Path):
    def run(folder: str, **options: Any) -> dict[str, torch.Tensor]:
        model = tiny.gpt2()
        assert any(isinstance(m, nn.Dropout) and m.p > 0 for m in model.modules())
        found = trainer(tmp_path / folder, model, tokens(), **options)
        found.eval_dataset = tokens(6)
        found.train()
        return weights(found.model)

    often = Evaluating()
    assert same(run("often", callbacks=[often]), run("never"))
    assert often.times == 4
