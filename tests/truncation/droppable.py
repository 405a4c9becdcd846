"""Small models of six blocks, of every kind of pattern that a config can lay over its blocks, and their bypass."""

from collections.abc import Callable

import torch
import transformers as hf
from models import zoo
from models.zoo import build
from torch import Tensor, nn

N = 6
COMMON = zoo.COMMON | {"num_hidden_layers": N}
GROUPED = COMMON | {"num_key_value_heads": 2}
MAMBA = {
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_d_state": 8,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 8,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
IDS = torch.randint(3, 90, (1, 14), generator=torch.Generator().manual_seed(1))


def case(
    name: str, config: str, blocks: str, **options: object
) -> tuple[Callable[[], nn.Module], str]:
    """Return how to make a model with weights so large that no block is nearly nothing, and where its blocks are."""

    def make() -> nn.Module:
        model = build(lambda: getattr(hf, name)(getattr(hf, config)(**options)))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
        return model

    return make, blocks


MODELS = {
    "bert": case("BertForMaskedLM", "BertConfig", "bert.encoder.layer", **COMMON),
    "modernbert": case(
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        "model.layers",
        **COMMON,
        global_attn_every_n_layers=3,
        local_attention=4,
        cls_token_id=1,
        sep_token_id=2,
    ),
    "distilbert": case(
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        "distilbert.transformer.layer",
        vocab_size=99,
        dim=32,
        n_layers=N,
        n_heads=4,
        hidden_dim=64,
    ),
    "deberta": case(
        "DebertaV2ForMaskedLM",
        "DebertaV2Config",
        "deberta.encoder.layer",
        **COMMON,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        position_buckets=8,
    ),
    "gpt2": case(
        "GPT2LMHeadModel",
        "GPT2Config",
        "transformer.h",
        vocab_size=99,
        n_embd=32,
        n_layer=N,
        n_head=4,
        n_positions=64,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "gpt_neo": case(
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        "transformer.h",
        vocab_size=99,
        hidden_size=32,
        num_layers=N,
        num_heads=4,
        intermediate_size=64,
        attention_types=[[["global", "local"], 3]],
        window_size=4,
        max_position_embeddings=64,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "llama": case("LlamaForCausalLM", "LlamaConfig", "model.layers", **GROUPED),
    "gemma3": case(
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        "model.layers",
        **GROUPED,
        head_dim=8,
        sliding_window=5,
        query_pre_attn_scalar=8,
        sliding_window_pattern=3,
    ),
    "qwen2": case(
        "Qwen2ForCausalLM",
        "Qwen2Config",
        "model.layers",
        **GROUPED,
        use_sliding_window=True,
        sliding_window=4,
        max_window_layers=3,
    ),
    "qwen2_moe": case(
        "Qwen2MoeForCausalLM",
        "Qwen2MoeConfig",
        "model.layers",
        **GROUPED,
        **EXPERTS,
        shared_expert_intermediate_size=16,
        decoder_sparse_step=2,
        mlp_only_layers=[3],
    ),
    "qwen3_next": case(
        "Qwen3NextForCausalLM",
        "Qwen3NextConfig",
        "model.layers",
        **GROUPED,
        **EXPERTS,
        head_dim=8,
        shared_expert_intermediate_size=16,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        full_attention_interval=3,
    ),
    "deepseek_v3": case(
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        "model.layers",
        **COMMON,
        num_key_value_heads=4,
        first_k_dense_replace=2,
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        n_group=1,
        topk_group=1,
        q_lora_rank=8,
        kv_lora_rank=8,
        qk_rope_head_dim=4,
        qk_nope_head_dim=4,
        v_head_dim=8,
    ),
    "smollm3": case(
        "SmolLM3ForCausalLM",
        "SmolLM3Config",
        "model.layers",
        **GROUPED,
        no_rope_layer_interval=3,
    ),
    "llama4": case(
        "Llama4ForCausalLM",
        "Llama4TextConfig",
        "model.layers",
        **GROUPED,
        head_dim=8,
        intermediate_size_mlp=32,
        num_local_experts=2,
        interleave_moe_layer_step=2,
        no_rope_layer_interval=3,
        attention_chunk_size=4,
    ),
    "mamba": case(
        "MambaForCausalLM",
        "MambaConfig",
        "backbone.layers",
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=N,
        state_size=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "bamba": case(
        "BambaForCausalLM",
        "BambaConfig",
        "model.layers",
        **GROUPED,
        **MAMBA,
        attn_layer_indices=[1, 4],
    ),
    "recurrent_gemma": case(
        "RecurrentGemmaForCausalLM",
        "RecurrentGemmaConfig",
        "model.layers",
        **COMMON,
        num_key_value_heads=1,
        lru_width=32,
        attention_window_size=8,
        block_types=["recurrent", "recurrent", "attention"],
    ),
}
"""Encoders, decoders, sliding windows, experts in some blocks, hybrids."""


def bypass(model: nn.Module, blocks: str, drop: list[int]) -> None:
    """Let blocks return the very tensor they are given, in a tuple where they return one."""
    for block in drop:
        module = model.get_submodule(f"{blocks}.{block - 1}")
        with torch.no_grad():
            seen: list[object] = []
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
def logits(model: nn.Module) -> Tensor:
    cache = {"use_cache": False} if hasattr(model.config, "use_cache") else {}
    return model(input_ids=IDS, **cache).logits
