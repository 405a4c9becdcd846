"""Blocks dropped by the verb: other modalities and formats, the card, and what cannot be dropped."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
import transformers as hf
from models import zoo
from models.tokenizer import word_tokenizer
from models.zoo import build
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from torch import nn
from truncation.droppable import COMMON, GROUPED, IDS, MODELS, N, bypass, case, logits, saved

import layerscope
from layerscope import LayerscopeError
from layerscope.truncation import truncate_layers


@torch.no_grad()
def test_a_vision_model_and_a_speech_model(tmp_path: Path) -> None:
    config = hf.ViTConfig(
        hidden_size=32,
        num_hidden_layers=N,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=16,
        patch_size=4,
        num_labels=5,
    )
    model = build(lambda: hf.ViTForImageClassification(config))
    processor = hf.ViTImageProcessor(size={"height": 16, "width": 16})
    out = layerscope.truncate(
        saved(model, tmp_path / "full", processor),
        drop=[1, 4],
        out=tmp_path / "cut",
        progress=False,
    )
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    blocks = model.vit.layers if hasattr(model.vit, "layers") else model.vit.encoder.layer
    for i in (0, 3):
        blocks[i].forward = lambda x, *_, **__: x
    cut = hf.AutoModelForImageClassification.from_pretrained(out).eval()
    torch.testing.assert_close(cut(pixels).logits, model(pixels).logits, rtol=1e-5, atol=1e-5)
    config = hf.Wav2Vec2Config(
        **COMMON,
        conv_dim=(8, 8),
        conv_kernel=(10, 3),
        conv_stride=(5, 2),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
    )
    model = build(lambda: hf.Wav2Vec2Model(config))
    folder = saved(model, tmp_path / "heard", hf.Wav2Vec2FeatureExtractor())
    cut = hf.AutoModel.from_pretrained(
        layerscope.truncate(folder, drop=[2], out=tmp_path / "ear", progress=False)
    )
    model.encoder.layers[1].forward = lambda x, *_, **__: x
    wave = torch.randn(1, 4000, generator=torch.Generator().manual_seed(0))
    found, wanted = (own.eval()(wave).last_hidden_state for own in (cut, model))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_the_command_its_card_and_a_layer_beside_it(cli, tmp_path: Path) -> None:
    full = saved(MODELS["llama"][0](), tmp_path / "full")
    printed = cli("truncate", full, "--layer", 5, "--drop", "2-3", "--out", tmp_path / "cut")
    assert printed.status == 0, printed.err
    assert "without blocks 2-3,6 of 6" in printed.out and "3 of 6" in printed.out
    assert "layerscope train" in printed.out
    model = MODELS["llama"][0]()
    bypass(model, "model.layers", [2, 3, 6])
    cut = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "cut").eval()
    torch.testing.assert_close(logits(cut), logits(model), rtol=1e-5, atol=1e-5)
    card = (tmp_path / "cut" / "README.md").read_text()
    assert "# full without blocks 2-3,6 of 6" in card and "`layerscope train` heals it" in card
    assert (
        "Its output is that of the full model with blocks 2-3,6 bypassed, after the final norm"
        in card
    )
    (made,) = truncate_layers(full, [5], tmp_path / "plain", drop=[5], progress=False)
    assert (made.layer, made.dropped) == (4, ()), (
        "without its last blocks a model merely ends earlier"
    )


def test_a_sentence_transformer_and_an_onnx_file(tmp_path: Path) -> None:
    out = layerscope.truncate("minilm", drop=[2, 4], out=tmp_path / "cut", progress=False)
    cut, full = (
        SentenceTransformer(str(folder), device="cpu")
        for folder in (out, layerscope.models.checks.embedded("minilm"))
    )
    texts = ["One text.", "Another, which is somewhat longer."]
    for i in (1, 3):
        full[0].auto_model.encoder.layer[i].forward = lambda x, *_, **__: x
    np.testing.assert_allclose(cut.encode(texts), full.encode(texts), rtol=1e-5, atol=1e-5)
    onnxruntime = pytest.importorskip("onnxruntime")
    model = MODELS["bert"][0]().bert
    out = layerscope.truncate(
        saved(model, tmp_path / "bert"),
        drop=[2],
        out=tmp_path / "onnx",
        format="onnx",
        progress=False,
    )
    model.encoder.layer[1].forward = lambda x, *_, **__: x
    session = onnxruntime.InferenceSession(
        str(out / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    given = {entry.name: np.ones((1, 14), np.int64) for entry in session.get_inputs()} | {
        "input_ids": IDS.numpy()
    }
    given |= {name: np.zeros((1, 14), np.int64) for name in given if name == "token_type_ids"}
    with torch.no_grad():
        wanted = model(input_ids=IDS).last_hidden_state.numpy()
    np.testing.assert_allclose(session.run(None, given)[0], wanted, rtol=1e-4, atol=1e-4)


def test_weights_keep_their_precision(tmp_path: Path) -> None:
    full = saved(MODELS["llama"][0]().to(torch.bfloat16), tmp_path / "full")
    out = layerscope.truncate(full, drop=[2, 3], out=tmp_path / "cut", progress=False)
    own, kept = load_file(full / "model.safetensors"), load_file(out / "model.safetensors")
    for new, old in enumerate([0, 3, 4, 5]):
        name = "model.layers.{}.mlp.up_proj.weight"
        assert kept[name.format(new)].dtype == torch.bfloat16
        assert torch.equal(kept[name.format(new)], own[name.format(old)])


@pytest.mark.parametrize(
    ("make", "drop", "why"),
    [
        (
            zoo.albert,
            [1],
            "albert_layers.0 is run as 3 blocks: none of them can be dropped alone, cut the model with",
        ),
        (zoo.t5, [1], "this model has several stacks of blocks: choose one with `part='encoder'`"),
        (
            case(
                "GPT2LMHeadModel",
                "GPT2Config",
                "",
                vocab_size=99,
                n_embd=32,
                n_layer=N,
                n_head=4,
                n_positions=64,
                scale_attn_by_inverse_layer_idx=True,
            )[0],
            [2],
            r"GPT2LMHeadModel cannot drop block 2 as a .*: .*\(.*scale_attn_by_inverse_layer_idx\)",
        ),
        (
            case(
                "JambaForCausalLM",
                "JambaConfig",
                "",
                **GROUPED,
                attn_layer_period=3,
                attn_layer_offset=1,
                expert_layer_period=2,
                expert_layer_offset=1,
                num_experts=2,
                mamba_d_state=4,
                mamba_dt_rank=4,
            )[0],
            [2, 3],
            r"drop blocks 2-3 as a .*: its blocks differ .*attn_layer_period, attn_layer_offset\); drop others",
        ),
        (
            case(
                "Lfm2ForCausalLM",
                "Lfm2Config",
                "",
                **GROUPED,
                full_attn_idxs=[2, 4],
                conv_L_cache=3,
                block_multiple_of=8,
            )[0],
            [3, 5],
            "does not load and run .*Attention layers.*: nothing was written",
        ),
        (
            case(
                "T5ForConditionalGeneration",
                "T5Config",
                "",
                vocab_size=99,
                d_model=32,
                num_layers=N,
                num_heads=4,
                d_ff=64,
                d_kv=8,
                decoder_start_token_id=0,
            )[0],
            [1],
            "drop block 1 as a .*: its blocks differ in their weights .*relative_attention_bias",
        ),
    ],
    ids=["shared", "parts", "index", "period", "no attention", "first"],
)
def test_blocks_that_cannot_be_left_out(
    make: Callable[[], nn.Module], drop: list[int], why: str, tmp_path: Path
) -> None:
    part = {"part": "encoder"} if "relative" in why else {}
    with pytest.raises(LayerscopeError, match=why):
        layerscope.truncate(
            make(),
            drop=drop,
            out=tmp_path / "cut",
            processor=word_tokenizer(),
            progress=False,
            **part,
        )
    assert list(tmp_path.iterdir()) == []


def test_blocks_in_a_wrong_order_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from layerscope.truncation import depth

    moved = depth.moved
    monkeypatch.setattr(
        depth, "moved", lambda stack, kept: moved(stack, sorted(kept, key=lambda i: (i == 4, i)))
    )
    with pytest.raises(
        LayerscopeError, match="its blocks compute something else than in the full model"
    ):
        layerscope.truncate(
            tiny.saved(MODELS["llama"][0](), tmp_path / "full", special=False),
            drop=[2],
            out=tmp_path / "cut",
            progress=False,
        )
