import re

import torch
import transformers as hf
from models.test_capture import layered
from models.zoo import (
    COMMON,
    MLP,
    TEXT,
    build,
    clip,
    of_class,
    of_family,
    t5,
    vit,
    whisper,
)
from torch import nn
from typed import refused

import layerscope
from layerscope.models.lens import skipping


def test_blocks_are_the_models_own_declaration_or_checkpointing_layers_or_found_by_structure():
    scopes = {name: layered(of_family(name)) for name in ("llama", "mamba", "albert")}
    assert scopes["llama"].stack.found_by == "the model's own declaration"
    assert scopes["mamba"].stack.found_by == "checkpointing layers"
    assert (
        scopes["albert"].stack.blocks
        == ("albert.encoder.albert_layer_groups.0.albert_layers.0",) * 3
    )
    plain = layered(build(lambda: MLP(True, False)), "tensor", list(torch.randn(2, 8)))
    assert plain.stack.found_by == "structure"


def test_a_norm_inside_the_head_is_not_the_final_norm():
    # BERT's head is dense, activation, LayerNorm: it reads the last block, but it is no norm
    assert layered(of_class("BertForMaskedLM")).stack.norm is None


def test_several_stacks_need_a_part():
    with refused(r"choose one with `part='encoder'` or `part='decoder'`$"):
        layered(t5())
    with refused(
        r"part 'encodr' does not exist, did you mean encoder\? \(these data go through encoder, decoder\)$",
    ):
        layered(t5(), part="encodr")
    assert layered(t5(), part="decoder").stack.depth == 2
    assert layered(t5(), part="encoder.block").stack.part == "encoder"


def test_data_go_through_one_tower_of_clip_and_inspect_needs_no_processor():
    model = clip()
    scope = layered(model)
    stack = scope.stack
    assert (stack.entry, stack.part, stack.depth) == ("text_model", "text", 3)
    assert layered(model, part="text").stack == stack
    with refused(r"part 'vision' does not exist: these data go through text$"):
        layered(model, part="vision")
    assert [one.part for one in layerscope.inspect(model)] == ["text", "vision"]
    assert [one.part for one in layerscope.inspect(model, part="vision")] == ["vision"]


@torch.no_grad()
def test_a_skipped_block_hands_on_the_bias_of_positions_that_later_ones_read():
    model = of_class("T5EncoderModel", num_layers=4, d_ff=64, d_kv=8)
    ids, stack = torch.tensor([[5, 6, 7, 8, 9, 10]]), layered(model).stack
    with skipping(model, stack, [2]):
        skipped = model(ids).last_hidden_state
    del model.encoder.block[1]
    torch.testing.assert_close(skipped, model(ids).last_hidden_state)


def test_overrides():
    model = build(lambda: MLP(True, True))
    rows = list(torch.randn(2, 8))
    assert layered(model, "tensor", rows, blocks="blocks").stack.found_by == "given"
    assert layered(model, "tensor", rows, norm="none").stack.norm is None
    with refused(
        re.escape("blocks 'bloks' does not exist in this model, did you mean blocks?"),
    ):
        layered(model, "tensor", rows, blocks="bloks")
    with refused("norm 'nope' does not exist in this model"):
        layered(model, "tensor", rows, norm="nope")


def test_wrong_kind_of_data_is_reported():
    with refused("this model reads images and the data are texts"):
        layered(vit())
    with refused("a text model as an object needs `processor`"):
        from layerscope.models import LoadOptions, Override, find_layers, load

        find_layers(load(TEXT[0].make(), LoadOptions()), "text", ["w5 w6"], Override())
    with refused("this model reads sounds and the data are texts"):
        layered(whisper(), part="encoder")


class Mixing(nn.Module):
    """A block whose output depends on the batch: what a batch norm left in training does."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x - 0.5 * x.sum(0, keepdim=True))


def test_a_model_that_mixes_batch_mates_runs_one_by_one():
    torch.manual_seed(0)
    scope = layered(
        nn.Sequential(Mixing(), Mixing()), "tensor", list(torch.randn(3, 8))
    )
    assert not scope.batching
    assert any("every sample is run alone" in note for note in scope.notes)


def test_a_model_that_ignores_the_mask_gets_batches_of_one_length():
    class Deaf(hf.BertModel):
        def forward(
            self, input_ids=None, attention_mask=None, **kwargs
        ):  # the mask is taken and not used
            return super().forward(input_ids=input_ids)

    torch.manual_seed(0)
    scope = layered(Deaf(hf.BertConfig(**COMMON)).eval())
    assert not scope.padding and scope.batching
    assert any("equal length" in note for note in scope.notes)
