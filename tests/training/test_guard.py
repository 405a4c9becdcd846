"""What stops a training: a loss that is not finite, weights that are not, another objective at a checkpoint."""

import math

import pytest
import tiny
import torch
import transformers as hf
from trainers import classes, tokens, trainer
from typed import refused

from layerscope.training.objectives import Objective


def spoils(step, weight, value, *, gradient=False):
    """Return what spoils one number of a weight as a step begins, or of its gradient as it ends."""
    callback = hf.TrainerCallback()

    def spoil(args, state, control, **_):
        if state.global_step + 1 == step:
            (weight.grad if gradient else weight.data).view(-1)[0] = value

    if gradient:
        callback.on_pre_optimizer_step = spoil
    else:
        callback.on_step_begin = spoil
    return callback


def run(folder, model, objective="aligned", **options):
    data = tokens() if isinstance(model, hf.GPT2LMHeadModel) else classes()
    how = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2} | options
    return trainer(folder, model, data, objective, **how)


@pytest.mark.parametrize(
    "schedule, value", [("always", math.nan), ("alternate", math.inf)]
)
def test_a_broken_loss_stops_before_the_weights_take_it(tmp_path, schedule, value):
    model = tiny.gpt2()
    breaks = spoils(5, model.transformer.h[1].mlp.c_fc.bias, value)
    how = {"gradient_accumulation_steps": 2, "callbacks": [breaks]}
    line = r"the loss of step 5 is NaN or infinite, layer 2 is the first .*checkpoint-4"
    with refused(line):
        run(tmp_path, model, Objective(schedule=schedule), **how).train()
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["checkpoint-2", "checkpoint-4"]
    good = hf.GPT2LMHeadModel.from_pretrained(tmp_path / "checkpoint-4")
    assert all(torch.isfinite(p).all() for p in good.parameters())
    # block 3 was still sound when the step was stopped
    blocks = model.transformer.h[2], good.transformer.h[2]
    assert torch.equal(*(block.mlp.c_fc.weight for block in blocks))


def test_broken_weights_are_never_saved(tmp_path):
    model = tiny.classifier()
    weight = model.bert.encoder.layer[2].output.dense.weight
    breaks = spoils(4, weight, math.nan, gradient=True)
    line = r"after step 4 bert.encoder.layer.2.output.dense.weight .*checkpoint-2"
    with refused(line):
        run(tmp_path, model, max_grad_norm=0.0, callbacks=[breaks]).train()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-2"]


def test_a_loss_broken_before_any_checkpoint_says_so(tmp_path):
    model = tiny.classifier()
    breaks = spoils(1, model.classifier.weight, math.inf)
    line = "step 1 .*layer 1 is the first .*no checkpoint was written"
    with refused(line):
        run(tmp_path, model, callbacks=[breaks]).train()


def test_losses_that_pass_the_exits_by_are_refused(tmp_path):
    line = "label_smoothing_factor takes a loss of the last logits"
    with refused(line):
        run(tmp_path, tiny.classifier(), label_smoothing_factor=0.1)
