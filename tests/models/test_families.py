"""Families that nobody listed: the same finder, without a line about any of them."""

import pytest
import torch
import transformers as hf
from models import zoo
from models.test_capture import IDS, TEXTS, layered, states
from models.zoo import HEADS, D, L, V, build, close
from typed import refused

CAUSAL = [
    "Falcon", "GPTJ", "Bloom", "StableLm", "Olmo", "Olmo2", "Cohere", "Granite", "Starcoder2", "Persimmon", "XGLM",
    "BioGpt", "CodeGen", "Mpt", "Rwkv", "GPTBigCode", "Nemotron", "Glm", "SmolLM3", "FalconMamba", "Qwen3Moe",
    "GraniteMoe", "Olmoe", "MiniMax", "Qwen3Next", "GPTNeo",
]  # fmt: skip
MASKED = [
    "MegatronBert", "Deberta", "DebertaV2", "MPNet", "XLMRoberta", "Camembert", "Nystromformer", "FNet", "RoFormer",
    "ConvBert", "LayoutLM", "Data2VecText", "RemBert", "IBert", "Esm", "NomicBert", "EuroBert", "BigBird",
]  # fmt: skip
PATTERNS = {
    "Qwen3Next": {"layer_types": ["linear_attention", "full_attention", "linear_attention"]},
    "GPTNeo": {"attention_types": [[["global", "local", "global"], 1]]},
}  # fmt: skip


def config(family, more=None):
    kind = getattr(hf, f"{family}Config")
    window = {"sliding_window": 8} if hasattr(kind(), "sliding_window") else {}
    return zoo.config(kind, **window | (more or {}))


@pytest.mark.parametrize("family", [*CAUSAL, *MASKED])
@torch.inference_mode()
def test_states_and_logits_are_the_models_own(family):
    causal = family in CAUSAL
    make = getattr(hf, f"{family}ForCausalLM" if causal else f"{family}ForMaskedLM")
    model = build(lambda: make(config(family, PATTERNS.get(family))))
    scope = layered(model)
    assert scope.stack.depth == model.config.num_hidden_layers == L
    assert scope.causal == scope.is_language_model == causal
    found, inputs = states(scope, TEXTS[:1]), scope.encoder.batch(TEXTS[:1])
    core = getattr(model, model.base_model_prefix)
    close(found[scope.final, L], core(**inputs.named).last_hidden_state)
    mine = torch.cat(list(scope.lens.token_logits(found["raw", L][0], inputs)))
    own = model(**inputs.named).logits[0]
    torch.testing.assert_close(mine, own, rtol=1e-4, atol=1e-5)


@torch.inference_mode()
def test_what_a_model_fills_a_text_up_with_is_no_token():
    # Longformer pads a text to whole attention windows
    model = build(
        lambda: hf.LongformerModel(config("Longformer", {"attention_window": 16}))
    )
    scope = layered(model)
    found = states(scope, TEXTS[:1])
    assert {state.shape for state in found.values()} == {(1, len(IDS[0]), D)}
    own = model(input_ids=torch.tensor([IDS[0]])).last_hidden_state
    close(found[scope.final, L], own)
    inside = states(layered(model, sublayers=True), TEXTS[:1])
    assert {state.shape for state in inside.values()} == {(1, len(IDS[0]), D)}
    close(inside["attn_residual", 2], inside["raw", 1] + inside["attn", 2])


def test_ids_of_another_tokenizer_are_refused_by_their_table():
    # the words go to w98
    model = build(lambda: hf.BertModel(config("Bert", {"vocab_size": 40})))
    scope = layered(model, samples=["w5 w6"])
    with refused(
        "token id 60 or position 1 is beyond an embedding table of the model",
    ):
        states(scope, ["w60"])


XLNET = {"vocab_size": V, "d_model": D, "n_layer": L, "n_head": HEADS, "d_inner": 64}
REFUSED = {
    # channels before tokens, no module that is a block, tokens before samples
    "SqueezeBert": lambda: config("SqueezeBert"),
    "XLM": lambda: config("XLM"),
    "XLNet": lambda: hf.XLNetConfig(**XLNET),
}


@pytest.mark.parametrize("family", REFUSED)
def test_a_model_without_states_of_tokens_between_its_blocks_is_reported(family):
    model = build(lambda: getattr(hf, f"{family}Model")(REFUSED[family]()))
    with refused("no stack of blocks was found in this model: "):
        layered(model)
