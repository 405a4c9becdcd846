"""Tiny random models of every family, with randomised norms so that a missing or doubled norm shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import tiny
import torch
import transformers as hf
from torch import nn

D, L, V, HEADS = 32, 3, 99, 4
P = 24
"""Dimensions that the towers of text and of images share."""
IMAGE = {"image_size": 16, "patch_size": 4}
close = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-5)
COMMON = {
    "vocab_size": V, "hidden_size": D, "num_hidden_layers": L, "num_attention_heads": HEADS, "intermediate_size": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
SIZES = COMMON | {
    "max_position_embeddings": 64, "num_key_value_heads": 2, "head_dim": 8, "num_experts": 4, "num_local_experts": 4,
    "num_experts_per_tok": 2, "n_routed_experts": 4, "moe_intermediate_size": 32, "embedding_size": D, "ffn_dim": 64,
    "shared_expert_intermediate_size": 32, "attention_heads": HEADS, "num_layers": L, "rotary_dim": 8, "state_size": 8,
}  # fmt: skip
"""What any family may call its sizes."""
CLASSES = {
    "bert": ("BertForMaskedLM", {}),
    "roberta": ("RobertaForMaskedLM", {"pad_token_id": 1, "bos_token_id": 0, "max_position_embeddings": 66}),
    "modernbert": (
        "ModernBertForMaskedLM",
        {"cls_token_id": 1, "sep_token_id": 2, "global_attn_every_n_layers": 2, "local_attention": 8},
    ),
    "albert": ("AlbertForMaskedLM", {"embedding_size": 16}),
    "distilbert": ("DistilBertForMaskedLM", {"hidden_dim": 64}),
    "electra": ("ElectraForMaskedLM", {"embedding_size": 16}),
    "gpt2": ("GPT2LMHeadModel", {"pad_token_id": None}),
    "gpt_neox": ("GPTNeoXForCausalLM", {}),
    "opt": ("OPTForCausalLM", {"word_embed_proj_dim": D, "pad_token_id": 1, "bos_token_id": 2}),
    "llama": ("LlamaForCausalLM", {}),
    "qwen2": ("Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3ForCausalLM", {}),
    "mistral": ("MistralForCausalLM", {}),
    "mixtral": ("MixtralForCausalLM", {}),
    "gemma": ("GemmaForCausalLM", {}),
    "gemma2": (
        "Gemma2ForCausalLM",
        {"sliding_window": 5, "attn_logit_softcapping": 0.5, "final_logit_softcapping": 0.5,
         "query_pre_attn_scalar": 8},
    ),
    "gemma3": (
        "Gemma3ForCausalLM",
        {"sliding_window": 5, "query_pre_attn_scalar": 8,
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    ),
    "phi": ("PhiForCausalLM", {}),
    "phi3": ("Phi3ForCausalLM", {}),
    "mamba": ("MambaForCausalLM", {}),
    "mamba2": ("Mamba2ForCausalLM", {"num_heads": 8, "n_groups": 2, "chunk_size": 8}),
    "t5": (
        "T5ForConditionalGeneration", {"num_decoder_layers": 2, "d_ff": 64, "d_kv": 8, "decoder_start_token_id": 0},
    ),
    "vit": ("ViTForImageClassification", {"image_size": 16, "patch_size": 4, "num_labels": 10}),
    "whisper": (
        "WhisperForConditionalGeneration",
        {"d_model": D, "encoder_layers": L, "decoder_layers": 2, "encoder_attention_heads": HEADS,
         "decoder_attention_heads": HEADS, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_source_positions": 1500,
         "num_mel_bins": 80, "decoder_start_token_id": 1, "begin_suppress_tokens": None, "suppress_tokens": None},
    ),
}  # fmt: skip
MASKED = ("bert", "roberta", "modernbert", "albert", "distilbert", "electra")


def randomise_norms(model, seed=0):
    """Draw every norm's weight and bias at random: ones and zeros would hide a norm that is applied twice."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        own = dict(module.named_parameters(recurse=False))
        if (
            own
            and all(p.ndim == 1 for p in own.values())
            and "norm" in type(module).__name__.lower()
        ):
            with torch.no_grad():
                for name, p in own.items():
                    p.copy_(
                        torch.rand(p.shape, generator=generator)
                        + (0.5 if name == "weight" else -0.5)
                    )
    return model.eval()


def drawn(*shape, seed=0):
    """Return normal numbers, seeded."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def build(make):
    torch.manual_seed(0)
    return randomise_norms(make())


def config(kind, depth=L, **more):
    """Return a small config of a kind: of all sizes those that it has."""
    known = kind()
    depths = {"num_hidden_layers": depth, "num_layers": depth}
    fixed = {
        name for name in SIZES if getattr(getattr(kind, name, None), "fset", 0) is None
    }
    sizes = {
        name: size for name, size in (SIZES | depths).items() if hasattr(known, name)
    }
    return kind(
        **{name: size for name, size in sizes.items() if name not in fixed} | more
    )


def of_class(kind, depth=L, **more):
    """Return a small model of a class of transformers."""
    made = getattr(hf, kind)
    return build(lambda: made(config(made.config_class, depth, **more)))


def seeded(kind, depth=L, **more):
    """Return the same with weights so large that no block is nearly nothing."""
    made = getattr(hf, kind)
    return tiny.seeded(made, config(made.config_class, depth, **more))


def clip():
    ends = COMMON | {"eos_token_id": 98}  # the greatest id ends a text
    return of_towers("CLIP", ends, projection_dim=P)


def siglip():
    return of_towers("Siglip", COMMON | {"projection_size": P})


def of_towers(name, text, **more):
    model, settings = getattr(hf, f"{name}Model"), getattr(hf, f"{name}Config")
    images = {name: COMMON[name] for name in tiny.SIZES} | IMAGE
    return build(
        lambda: model(settings(text_config=text, vision_config=images, **more))
    )


def of_family(name):
    kind, more = CLASSES[name]
    return of_class(kind, **more)


bert, albert, gpt2, llama, mamba, opt, mixtral, gemma2, t5, vit, whisper = (
    partial(of_family, name)
    for name in ("bert", "albert", "gpt2", "llama", "mamba", "opt", "mixtral", "gemma2", "t5", "vit", "whisper")
)  # fmt: skip


class Block(nn.Module):
    """A linear layer with an activation, added to its input or not."""

    def __init__(self, residual):
        super().__init__()
        self.linear, self.residual = nn.Linear(D, D), residual

    def forward(self, x):
        out = self.linear(x).relu()
        return x + out if self.residual else out


class MLP(nn.Module):
    def __init__(self, residual, norm):
        super().__init__()
        self.stem = nn.Linear(8, D)
        self.blocks = nn.ModuleList(Block(residual) for _ in range(L))
        self.out_scale = nn.LayerNorm(D) if norm else nn.Identity()
        self.head = nn.Linear(D, 3)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.out_scale(x))


@dataclass(frozen=True)
class Case:
    """A text model: how to make it, and where an independent walk through it finds its pieces."""

    name: str
    make: Callable[[], nn.Module]
    causal: bool


TEXT = [
    Case(name, partial(of_family, name), name not in MASKED)
    for name in CLASSES
    if name not in ("t5", "vit", "whisper")
]
