"""Blocks dropped by the verb: other modalities and formats, the card, and what cannot be dropped."""

from functools import partial

import numpy as np
import pytest
import torch
import transformers as hf
from models import zoo
from models.tokenizer import saved, word_tokenizer
from truncation.cutting import (
    TEXTS,
    close,
    cut,
    loaded,
    run_onnx,
    serve,
    truncated,
)
from truncation.droppable import IDS, MODELS, N, bypass, logits
from typed import refused


def skip(*blocks):
    for block in blocks:
        block.forward = lambda x, *_, **__: x


@torch.no_grad()
def test_a_vision_model(tmp_path):
    model = zoo.seeded("ViTForImageClassification", N, **zoo.IMAGE, num_labels=5)
    processor = hf.ViTImageProcessor(size={"height": 16, "width": 16})
    full = saved(model, tmp_path / "full", processor)
    short = loaded(
        hf.AutoModelForImageClassification,
        cut(full, drop=[1, 4], out=tmp_path / "cut"),
    )
    pixels = zoo.drawn(2, 3, 16, 16)
    blocks = (
        model.vit.layers if hasattr(model.vit, "layers") else model.vit.encoder.layer
    )
    skip(blocks[0], blocks[3])
    close(short(pixels).logits, model(pixels).logits)


def test_the_command_its_card_and_a_layer_beside_it(cli, tmp_path):
    full = saved(MODELS["llama"][0](), tmp_path / "full")
    printed = cli(*f"truncate {full} --layer 5 --drop 2-3 --out {tmp_path}/cut".split())
    assert printed.status == 0, printed.err
    for words in ("without blocks 2-3,6 of 6", "3 of 6", "--heal DATA"):
        assert words in printed.out
    model = MODELS["llama"][0]()
    bypass(model, "model.layers", [2, 3, 6])
    close(logits(loaded(hf.AutoModelForCausalLM, tmp_path / "cut")), logits(model))
    card = (tmp_path / "cut" / "README.md").read_text()
    assert "# full without blocks 2-3,6 of 6" in card
    assert "`layerscope truncate --heal` heals it" in card
    like = "Its output is that of the full model with blocks 2-3,6 bypassed, after the final norm"
    assert like in card
    made = truncated(full, 5, tmp_path / "plain", drop=[5])
    assert (made.layer, made.dropped) == (4, ()), "it merely ends earlier"


def test_a_sentence_transformer_and_an_onnx_file(embedder, tmp_path):
    full = serve(embedder)
    short = serve(cut(embedder, drop=[2, 4], out=tmp_path / "cut"))
    layers = full[0].auto_model.encoder.layer
    skip(layers[1], layers[3])
    close(short.encode(TEXTS), full.encode(TEXTS))
    model = MODELS["bert"][0]().bert
    full = saved(model, tmp_path / "bert")
    out = cut(full, drop=[2], out=tmp_path / "onnx", format="onnx")
    skip(model.encoder.layer[1])
    ones, zeros = np.ones_like(IDS), np.zeros_like(IDS)
    inputs = {"input_ids": IDS, "attention_mask": ones, "token_type_ids": zeros}
    states = run_onnx(out, "last_hidden_state", **inputs)
    close(states, model(input_ids=IDS).last_hidden_state, near=1e-4)


JAMBA = {"attn_layer_period": 3, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
         "mamba_d_state": 4, "mamba_dt_rank": 4}  # fmt: skip
LFM2 = {"full_attn_idxs": [2, 4], "conv_L_cache": 3, "block_multiple_of": 8}
CASES = {
    "shared": (zoo.albert, [1], "albert_layers.0 is run as 3 blocks: none of them can be dropped alone, cut the model"),
    "parts": (zoo.t5, [1], "this model has several stacks of blocks: choose one with `part='encoder'`"),
    "index": (partial(zoo.seeded, "GPT2LMHeadModel", N, scale_attn_by_inverse_layer_idx=True), [2],
              "GPT2LMHeadModel cannot drop block 2 as a .*: its blocks compute something else"),
    "period": (partial(zoo.seeded, "JambaForCausalLM", N, **JAMBA), [2, 3],
               "drop blocks 2-3 as a .*: its blocks differ .*; drop others, or cut it with `layer`"),
    "no attention": (partial(zoo.seeded, "Lfm2ForCausalLM", N, **LFM2), [3, 5],
                     "does not load and run .*Attention layers.*: nothing was written"),
    "first": (partial(zoo.seeded, "T5ForConditionalGeneration", N, d_ff=64, d_kv=8, decoder_start_token_id=0), [1],
              "drop block 1 as a .*: its blocks differ in their weights .*relative_attention_bias"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_blocks_that_cannot_be_left_out(name, tmp_path):
    make, drop, why = CASES[name]
    options = {"part": "encoder"} if name == "first" else {}
    with refused(why):
        out, processor = tmp_path / "cut", word_tokenizer()
        cut(make(), drop=drop, out=out, processor=processor, **options)
    assert list(tmp_path.iterdir()) == []
