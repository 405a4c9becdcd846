"""Layer dropout against models from which the skipped blocks were taken out, sample by sample."""

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers as hf
from tiny import one_thread
from torch import nn
from trainers import classes, losses, still, tokens, trainer

from layerscope import LayerscopeError
from layerscope.models.stack import Stack
from layerscope.training.exits import layer_dropout
from layerscope.training.objectives import Objective
from layerscope.training.trainer import layered_model

__all__ = ["one_thread"]
MODELS = {"gpt2": tiny.gpt2, "llama": tiny.llama, "bert": tiny.classifier}


def stack_of(model: nn.Module) -> Stack:
    special = not isinstance(model, hf.GPT2LMHeadModel)
    return layered_model(model, tiny.tokenizer(special=special), None).stack


def without(model: nn.Module, path: str, kept: list[nn.Module]) -> None:
    """Leave these blocks alone in a model."""
    owner, _, name = path.rpartition(".")
    setattr(model.get_submodule(owner), name, nn.ModuleList(kept))
    for module in model.modules():
        if hasattr(module, "config"):
            module.config.num_hidden_layers = len(kept)  # Llama's loop goes by it


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_a_sample_runs_through_the_blocks_it_does_not_skip(name: str):
    model, options = MODELS[name](), {} if name == "bert" else {"use_cache": False}
    stack = stack_of(model)
    ids = torch.randint(4, 90, (12, 7), generator=torch.Generator().manual_seed(1))
    rates = (0.0, 0.4, 0.7)
    torch.manual_seed(5)
    with layer_dropout(model, stack, rates):
        logits = model(ids, **options).logits
    torch.manual_seed(5)
    skipped = torch.stack([torch.rand(12) < rate for rate in rates])
    assert not skipped[0].any() and 2 < skipped[1].sum() < 10 and len(skipped.T.unique(dim=0)) == 4
    path = stack.blocks[0].rpartition(".")[0]
    blocks = [*model.get_submodule(path)]
    for i, row in enumerate(ids):
        kept = [block for block, gone in zip(blocks, skipped[:, i], strict=True) if not gone]
        without(model, path, kept)
        torch.testing.assert_close(
            logits[i], model(row[None], **options).logits[0], atol=1e-5, rtol=0
        )


@torch.no_grad()
def test_a_block_that_runs_several_times_has_a_probability_each_time():
    config = hf.AlbertConfig(**tiny.COMMON, embedding_size=32, max_position_embeddings=64)
    model, ids = tiny.seeded(hf.AlbertForMaskedLM, config), torch.arange(4, 14)[None]
    stack = stack_of(model)
    assert stack.depth == 3 and len({*stack.blocks}) == 1
    with layer_dropout(model, stack, (0.0, 1.0, 0.0)):
        found = [model(ids).logits for _ in range(2)]
    config.num_hidden_layers = 2
    wanted = model(ids).logits
    assert all(torch.allclose(one, wanted, atol=1e-6) for one in found)


def test_skipped_blocks_have_gradients_of_zero():
    model = tiny.gpt2().train()
    with layer_dropout(model, stack_of(model), (0.0, 1.0, 0.0)):
        model(torch.arange(4, 14)[None]).logits.square().sum().backward()
    blocks = model.transformer.h
    sizes = [max(float(p.grad.abs().max()) for p in block.parameters()) for block in blocks]
    assert sizes[0] > 0 and sizes[1] == 0 and sizes[2] > 0


def test_blocks_are_skipped_while_training_alone_and_as_often_as_said(tmp_path: Path):
    model, skipped = tiny.gpt2(), {}

    def count(block: nn.Module, args: Any, output: Any) -> None:
        output = output if isinstance(output, torch.Tensor) else output[0]
        if output.shape == args[0].shape:  # the last one hands on several exits
            same = (output == args[0]).flatten(1).all(1).tolist()
            skipped.setdefault((block.training, block), []).extend(same)

    objective = Objective("standard", layer_dropout=0.5)
    how = {"max_steps": 30, "per_device_train_batch_size": 32}
    run = trainer(tmp_path, model, tokens(64), objective, **how)
    for block in model.transformer.h:
        block.register_forward_hook(count)
    run.train()
    run.evaluate(tokens(64))
    for block, rate in zip(model.transformer.h, (0.0, 0.5 * (2**0.5 - 1), 0.5), strict=True):
        seen = skipped[True, block]
        n = len(seen)
        assert n > 900
        assert abs(sum(seen) / n - rate) <= 4 * (rate * (1 - rate) / n) ** 0.5
        assert not any(skipped.get((False, block), []))


def test_of_a_training_from_scratch_the_first_step_skips_nothing(tmp_path: Path):
    runs = []
    for rate in (0.0, 0.9):
        objective = Objective(layer_dropout=rate, from_scratch=True)
        run = trainer(tmp_path, still(tiny.classifier()), classes(), objective, max_steps=3)
        run.train()
        runs.append(losses(run))
    assert runs[0][0] == runs[1][0] and runs[0][2] != runs[1][2]


def test_what_cannot_be_skipped_is_refused(tmp_path: Path):
    objective = Objective(layer_dropout=0.1)
    with pytest.raises(LayerscopeError, match="computes blocks again without their dropout"):
        trainer(tmp_path, tiny.gpt2(), tokens(), objective, gradient_checkpointing=True)
    stack = Stack("", "", ("blocks.0",), None, 4, "", 0, ends=("norms.0",))
    line = r"skipped layers need blocks that give .*this model runs norms\.0 after"
    with pytest.raises(LayerscopeError, match=line):
        stack.check_plain("skipped layers")
