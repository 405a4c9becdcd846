"""Layer dropout against models from which the skipped blocks were taken out, sample by sample."""

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers as hf
from tiny import one_thread
from torch import nn
from training.test_trainer import classes, tokens, trainer

from layerscope import LayerscopeError
from layerscope.models.stack import Stack
from layerscope.training.exits import layer_dropout
from layerscope.training.objectives import Objective
from layerscope.training.trainer import layered_model

__all__ = ["one_thread"]
MODELS = {"gpt2": tiny.gpt2, "llama": tiny.llama, "bert": tiny.classifier}


def stacked(model: nn.Module) -> Stack:
    return layered_model(
        model, tiny.tokenizer(special=not isinstance(model, hf.GPT2LMHeadModel)), None
    ).stack


@pytest.mark.parametrize("name", MODELS)
def test_a_sample_runs_through_the_blocks_it_does_not_skip(name: str):
    model, options = MODELS[name](), {} if name == "bert" else {"use_cache": False}
    stack, ids = (
        stacked(model),
        torch.randint(4, 90, (12, 7), generator=torch.Generator().manual_seed(1)),
    )
    rates = (0.0, 0.4, 0.7)
    torch.manual_seed(5)
    with layer_dropout(model, stack, rates), torch.no_grad():
        found = model(ids, **options).logits
    torch.manual_seed(5)
    skipped = torch.stack([torch.rand(12) < rate for rate in rates])
    assert not skipped[0].any() and 2 < skipped[1].sum() < 10 and len(skipped.T.unique(dim=0)) == 4
    path = stack.blocks[0].rpartition(".")[0]
    owner, blocks = model.get_submodule(path.rpartition(".")[0]), [*model.get_submodule(path)]
    for i, row in enumerate(ids):
        kept = [block for block, gone in zip(blocks, skipped[:, i], strict=True) if not gone]
        setattr(owner, path.rpartition(".")[2], nn.ModuleList(kept))
        for config in {
            id(m.config): m.config for m in model.modules() if hasattr(m, "config")
        }.values():
            config.num_hidden_layers = len(kept)  # Llama's loop goes by it
        with torch.no_grad():
            alone = model(row[None], **options).logits[0]
        assert torch.allclose(found[i], alone, atol=1e-5), i


def test_a_block_that_runs_several_times_has_a_probability_each_time():
    config = hf.AlbertConfig(**tiny.COMMON, embedding_size=32, max_position_embeddings=64)
    model, shallow = (tiny.seeded(hf.AlbertForMaskedLM, config) for _ in range(2))
    shallow.albert.encoder.config.num_hidden_layers = 3
    ids = torch.arange(4, 14)[None]
    stack = layered_model(model, tiny.tokenizer(special=True), None).stack
    assert stack.depth == 3 and len(set(stack.blocks)) == 1
    with torch.no_grad():
        with layer_dropout(model, stack, (0.0, 1.0, 0.0)):
            found = [model(ids).logits for _ in range(2)]
        config.num_hidden_layers = 2
        wanted = shallow(ids).logits
    assert all(torch.allclose(one, wanted, atol=1e-6) for one in found)


def test_skipped_blocks_have_gradients_of_zero():
    model = tiny.gpt2().train()
    with layer_dropout(model, stacked(model), (0.0, 1.0, 0.0)):
        model(torch.arange(4, 14)[None]).logits.square().sum().backward()
    sizes = [
        max(float(p.grad.abs().max()) for p in block.parameters()) for block in model.transformer.h
    ]
    assert sizes[0] > 0 and sizes[1] == 0 and sizes[2] > 0


class Watched:
    """Counts which block of a model each sample leaves as it entered it, while training and while evaluating."""

    def __init__(self, model: nn.Module) -> None:
        self.skipped: dict[tuple[bool, int], list[bool]] = {}
        for index, block in enumerate(model.transformer.h):
            block.register_forward_hook(
                lambda block, args, output, i=index: self.count(i, block, args[0], output)
            )

    def count(self, index: int, block: nn.Module, given: Any, output: Any) -> None:
        output = output if isinstance(output, torch.Tensor) else output[0]
        if output.shape == given.shape:  # the last one hands on several exits
            same = (output == given).flatten(1).all(1).tolist()
            self.skipped.setdefault((block.training, index), []).extend(same)


def test_blocks_are_skipped_while_training_alone_and_as_often_as_said(tmp_path: Path):
    model = tiny.gpt2()
    watched = Watched(model)
    run = trainer(
        tmp_path,
        model,
        tokens(64),
        Objective("standard", layer_dropout=0.5),
        max_steps=30,
        per_device_train_batch_size=32,
    )
    watched.skipped.clear()  # what a probe ran
    run.train()
    run.evaluate(tokens(64))
    shares = {key: sum(found) / len(found) for key, found in watched.skipped.items()}
    n = len(watched.skipped[True, 1])
    assert n > 900
    for index, rate in enumerate((0.0, 0.5 * (2**0.5 - 1), 0.5)):
        assert abs(shares[True, index] - rate) <= 4 * (rate * (1 - rate) / n) ** 0.5
        assert shares.get((False, index), 0.0) == 0


def test_of_a_training_from_scratch_the_first_step_skips_nothing(tmp_path: Path):
    losses = []
    for rate in (0.0, 0.9):
        model = tiny.classifier()
        for module in (m for m in model.modules() if isinstance(m, nn.Dropout)):
            module.p = 0.0
        run = trainer(
            tmp_path,
            model,
            classes(),
            Objective(layer_dropout=rate, from_scratch=True),
            max_steps=3,
        )
        run.train()
        losses.append([entry["loss"] for entry in run.state.log_history if "loss" in entry])
    assert losses[0][0] == losses[1][0] and losses[0][2] != losses[1][2]


def test_blocks_that_are_computed_again_are_refused(tmp_path: Path):
    with pytest.raises(LayerscopeError, match="computes blocks again without their dropout"):
        trainer(
            tmp_path,
            tiny.gpt2(),
            tokens(),
            Objective(layer_dropout=0.1),
            gradient_checkpointing=True,
        )


def test_a_layer_that_follows_its_block_cannot_be_skipped():
    stack = Stack("", "", ("blocks.0",), None, 4, "", 0, ends=("norms.0",))
    with pytest.raises(
        LayerscopeError,
        match=r"skipped layers need blocks that give .*this model runs norms\.0 after",
    ):
        stack.check_plain("skipped layers")
