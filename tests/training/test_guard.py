"""What stops a training: a loss that is not finite, weights that are not, another objective at a checkpoint."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers as hf
from test_trainer import classes, tokens, trainer, weights
from tiny import one_thread
from torch import nn

from layerscope import LayerscopeError
from layerscope.training.objectives import Objective
from layerscope.training.trainer import AlignedTrainer

__all__ = ["one_thread"]


class Breaks(hf.TrainerCallback):
    """Spoils one weight as a step begins, or its gradient as it ends."""

    def __init__(
        self, step: int, weight: nn.Parameter, value: float, gradient: bool = False
    ) -> None:
        self.step, self.weight, self.value, self.gradient = step, weight, value, gradient

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step + 1 == self.step and not self.gradient:
            with torch.no_grad():
                self.weight.view(-1)[0] = self.value

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step + 1 == self.step and self.gradient:
            self.weight.grad.view(-1)[0] = self.value


def run(folder: Path, model: nn.Module, objective: Any = "aligned", **options: Any) -> Any:
    data = tokens() if isinstance(model, hf.GPT2LMHeadModel) else classes()
    found = trainer(folder, model, data, objective, max_steps=6, **options)
    found.args.save_strategy, found.args.save_steps = hf.IntervalStrategy.STEPS, 2
    return found


@pytest.mark.parametrize("schedule", ["always", "alternate"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_broken_loss_stops_before_the_weights_take_it(
    tmp_path: Path, schedule: str, value: float
):
    model = tiny.gpt2()
    found = run(tmp_path, model, Objective(schedule=schedule), gradient_accumulation_steps=2)
    found.add_callback(Breaks(5, model.transformer.h[1].mlp.c_fc.bias, value))
    with pytest.raises(LayerscopeError) as told:
        found.train()
    line = str(told.value)
    assert "the loss of step 5 is NaN or infinite" in line and "layer 2 is the first" in line
    last = tmp_path / "checkpoint-4"
    assert str(last) in line and sorted(p.name for p in tmp_path.iterdir()) == [
        "checkpoint-2",
        "checkpoint-4",
    ]
    good = hf.GPT2LMHeadModel.from_pretrained(last)
    assert all(torch.isfinite(p).all() for p in good.parameters())
    # block 3 was still sound when the step was stopped
    assert torch.equal(
        model.transformer.h[2].mlp.c_fc.weight, good.transformer.h[2].mlp.c_fc.weight
    )


def test_broken_weights_are_never_saved(tmp_path: Path):
    model = tiny.classifier()
    found = run(tmp_path, model, max_grad_norm=0.0)
    found.add_callback(
        Breaks(4, model.bert.encoder.layer[2].output.dense.weight, math.nan, gradient=True)
    )
    with pytest.raises(
        LayerscopeError,
        match=r"after step 4 bert.encoder.layer.2.output.dense.weight .*checkpoint-2",
    ):
        found.train()
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint-2"]


def test_a_loss_broken_before_any_checkpoint_says_so(tmp_path: Path):
    model = tiny.classifier()
    found = run(tmp_path, model)
    found.add_callback(Breaks(1, model.classifier.weight, math.inf))
    with pytest.raises(
        LayerscopeError, match="step 1 .*layer 1 is the first .*no checkpoint was written"
    ):
        found.train()


@pytest.mark.parametrize(
    ("change", "layers", "told"),
    [
        (
            Objective("cosine"),
            None,
            "trained with objective 'aligned', this training has objective 'cosine'",
        ),
        (
            Objective(schedule="alternate"),
            None,
            "schedule 'always', this training has schedule 'alternate'",
        ),
        (
            Objective(weights=[1, 1, 2]),
            None,
            r"weights 'linear', this training has weights \[1, 1, 2\]",
        ),
        (Objective(), [1, 3], r"layers \[1, 2, 3\], this training has layers \[1, 3\]"),
    ],
)
def test_another_objective_does_not_resume(
    tmp_path: Path, change: Objective, layers: Any, told: str
):
    run(tmp_path, tiny.classifier()).train()
    model = tiny.classifier()
    before = weights(model)
    args = hf.TrainingArguments(
        str(tmp_path), max_steps=6, use_cpu=True, report_to="none", disable_tqdm=True
    )
    text = tiny.tokenizer(special=True)
    other = AlignedTrainer(model, objective=change, layers=layers, args=args, processing_class=text)
    for checkpoint in (True, str(tmp_path / "checkpoint-4")):
        with pytest.raises(LayerscopeError, match=told):
            other.train(resume_from_checkpoint=checkpoint)
    assert all(torch.equal(before[key], value) for key, value in weights(model).items())


def test_a_checkpoint_of_a_plain_trainer_does_not_resume(tmp_path: Path):
    found = run(tmp_path, tiny.classifier())
    found.train()
    record = tmp_path / "checkpoint-6" / "objective.json"
    assert json.loads(record.read_text())["objective"] == "aligned"
    record.unlink()
    with pytest.raises(LayerscopeError, match="does not hold its objective"):
        run(tmp_path, tiny.classifier()).train(resume_from_checkpoint=True)


def test_losses_that_pass_the_exits_by_are_refused(tmp_path: Path):
    with pytest.raises(
        LayerscopeError, match="label_smoothing_factor takes a loss of the last logits"
    ):
        run(tmp_path, tiny.classifier(), label_smoothing_factor=0.1)
