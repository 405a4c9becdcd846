"""Small models of six blocks, of every kind of pattern that a config can lay over its blocks, and their bypass."""

from functools import partial

import torch
from models import zoo

N = 6
MAMBA = {
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_d_state": 8,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 8,
}
IDS = torch.randint(3, 90, (1, 14), generator=torch.Generator().manual_seed(1))


def case(kind, blocks="model.layers", **options):
    """Return how to make a model, and where its blocks are."""
    return partial(zoo.seeded, kind, N, **options), blocks


MODELS = {
    "bert": case("BertForMaskedLM", "bert.encoder.layer"),
    "modernbert": case(
        "ModernBertForMaskedLM",
        global_attn_every_n_layers=3,
        local_attention=4,
        cls_token_id=1,
        sep_token_id=2,
    ),
    "distilbert": case(
        "DistilBertForMaskedLM", "distilbert.transformer.layer", hidden_dim=64
    ),
    "deberta": case(
        "DebertaV2ForMaskedLM",
        "deberta.encoder.layer",
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        position_buckets=8,
    ),
    "gpt2": case("GPT2LMHeadModel", "transformer.h"),
    "gpt_neo": case(
        "GPTNeoForCausalLM",
        "transformer.h",
        attention_types=[[["global", "local"], 3]],
        window_size=4,
    ),
    "llama": case("LlamaForCausalLM"),
    "gemma3": case(
        "Gemma3ForCausalLM",
        sliding_window=5,
        query_pre_attn_scalar=8,
        sliding_window_pattern=3,
    ),
    "qwen2": case(
        "Qwen2ForCausalLM",
        use_sliding_window=True,
        sliding_window=4,
        max_window_layers=3,
    ),
    "qwen2_moe": case(
        "Qwen2MoeForCausalLM", decoder_sparse_step=2, mlp_only_layers=[3]
    ),
    "qwen3_next": case(
        "Qwen3NextForCausalLM",
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        full_attention_interval=3,
    ),
    "deepseek_v3": case(
        "DeepseekV3ForCausalLM",
        num_key_value_heads=4,
        first_k_dense_replace=2,
        n_group=1,
        topk_group=1,
        q_lora_rank=8,
        kv_lora_rank=8,
        qk_rope_head_dim=4,
        qk_nope_head_dim=4,
        v_head_dim=8,
        head_dim=4,
    ),
    "smollm3": case("SmolLM3ForCausalLM", no_rope_layer_interval=3),
    "llama4": case(
        "Llama4ForCausalLM",
        intermediate_size_mlp=32,
        interleave_moe_layer_step=2,
        no_rope_layer_interval=3,
        attention_chunk_size=4,
    ),
    "mamba": case("MambaForCausalLM", "backbone.layers"),
    "bamba": case("BambaForCausalLM", **MAMBA, attn_layer_indices=[1, 4]),
    "recurrent_gemma": case(
        "RecurrentGemmaForCausalLM",
        num_key_value_heads=1,
        lru_width=32,
        attention_window_size=8,
        block_types=["recurrent", "recurrent", "attention"],
    ),
}
"""Encoders, decoders, sliding windows, experts in some blocks, hybrids."""


def bypass(model, blocks, drop):
    """Let blocks return the very tensor they are given, in a tuple where they return one."""
    for block in drop:
        module = model.get_submodule(f"{blocks}.{block - 1}")
        with torch.no_grad():
            seen = []
            handle = module.register_forward_hook(
                lambda _, __, output, seen=seen: seen.append(output)
            )
            model(IDS)
            handle.remove()
        wraps = isinstance(seen[0], tuple)
        rest = (None,) * (len(seen[0]) - 1) if wraps else ()
        module.forward = lambda x, *_, wraps=wraps, rest=rest, **__: (
            (x, *rest) if wraps else x
        )


@torch.no_grad()
def logits(model):
    cache = {"use_cache": False} if hasattr(model.config, "use_cache") else {}
    return model(input_ids=IDS, **cache).logits
