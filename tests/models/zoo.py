"""Tiny random models of every family, with randomised norms so that a missing or doubled norm shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import transformers as hf
from torch import Tensor, nn

D, L, V, HEADS = 32, 3, 99, 4
COMMON = {
    "vocab_size": V, "hidden_size": D, "num_hidden_layers": L, "num_attention_heads": HEADS, "intermediate_size": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def randomise_norms(model: nn.Module, seed: int = 0) -> nn.Module:
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


def build(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return randomise_norms(make())


def bert() -> nn.Module:
    return build(lambda: hf.BertForMaskedLM(hf.BertConfig(**COMMON, max_position_embeddings=64)))


def roberta() -> nn.Module:
    return build(
        lambda: hf.RobertaForMaskedLM(
            hf.RobertaConfig(
                **COMMON | {"pad_token_id": 1, "bos_token_id": 0}, max_position_embeddings=66
            )
        )
    )


def modernbert() -> nn.Module:
    config = hf.ModernBertConfig(
        **COMMON, cls_token_id=1, sep_token_id=2, global_attn_every_n_layers=2, local_attention=8
    )
    return build(lambda: hf.ModernBertForMaskedLM(config))


def albert() -> nn.Module:
    return build(
        lambda: hf.AlbertForMaskedLM(
            hf.AlbertConfig(**COMMON, embedding_size=16, max_position_embeddings=64)
        )
    )


def gpt2() -> nn.Module:
    config = hf.GPT2Config(
        vocab_size=V,
        n_embd=D,
        n_layer=L,
        n_head=HEADS,
        n_positions=64,
        bos_token_id=1,
        eos_token_id=2,
    )
    return build(lambda: hf.GPT2LMHeadModel(config))


def gpt_neox() -> nn.Module:
    return build(
        lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**COMMON, max_position_embeddings=64))
    )


def opt() -> nn.Module:
    config = hf.OPTConfig(
        vocab_size=V,
        hidden_size=D,
        num_hidden_layers=L,
        num_attention_heads=HEADS,
        ffn_dim=64,
        word_embed_proj_dim=D,
        max_position_embeddings=64,
        pad_token_id=1,
        bos_token_id=2,
        eos_token_id=2,
    )
    return build(lambda: hf.OPTForCausalLM(config))


def llama() -> nn.Module:
    return build(lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**COMMON, num_key_value_heads=2)))


def qwen3() -> nn.Module:
    return build(
        lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**COMMON, num_key_value_heads=2, head_dim=8))
    )


def mamba() -> nn.Module:
    config = hf.MambaConfig(
        vocab_size=V,
        hidden_size=D,
        num_hidden_layers=L,
        state_size=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return build(lambda: hf.MambaForCausalLM(config))


def distilbert() -> nn.Module:
    config = COMMON | {"hidden_dim": 64, "max_position_embeddings": 64}
    return build(lambda: hf.DistilBertForMaskedLM(hf.DistilBertConfig(**config)))


def electra() -> nn.Module:
    config = hf.ElectraConfig(**COMMON, embedding_size=16, max_position_embeddings=64)
    return build(lambda: hf.ElectraForMaskedLM(config))


def qwen2() -> nn.Module:
    return build(lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**COMMON, num_key_value_heads=2)))


def mistral() -> nn.Module:
    return build(lambda: hf.MistralForCausalLM(hf.MistralConfig(**COMMON, num_key_value_heads=2)))


def mixtral() -> nn.Module:
    config = hf.MixtralConfig(
        **COMMON, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2
    )
    return build(lambda: hf.MixtralForCausalLM(config))


def gemma() -> nn.Module:
    return build(
        lambda: hf.GemmaForCausalLM(hf.GemmaConfig(**COMMON, num_key_value_heads=2, head_dim=8))
    )


def gemma2() -> nn.Module:
    config = hf.Gemma2Config(
        **COMMON,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=5,
        attn_logit_softcapping=0.5,
        final_logit_softcapping=0.5,
        query_pre_attn_scalar=8,
    )
    return build(lambda: hf.Gemma2ForCausalLM(config))


def gemma3() -> nn.Module:
    config = hf.Gemma3TextConfig(
        **COMMON,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=5,
        query_pre_attn_scalar=8,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    )
    return build(lambda: hf.Gemma3ForCausalLM(config))


def phi() -> nn.Module:
    return build(lambda: hf.PhiForCausalLM(hf.PhiConfig(**COMMON)))


def phi3() -> nn.Module:
    return build(lambda: hf.Phi3ForCausalLM(hf.Phi3Config(**COMMON, num_key_value_heads=2)))


def mamba2() -> nn.Module:
    config = hf.Mamba2Config(
        vocab_size=V,
        hidden_size=D,
        num_hidden_layers=L,
        state_size=8,
        num_heads=8,
        head_dim=8,
        n_groups=2,
        chunk_size=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return build(lambda: hf.Mamba2ForCausalLM(config))


def t5() -> nn.Module:
    config = hf.T5Config(
        vocab_size=V,
        d_model=D,
        num_layers=L,
        num_decoder_layers=2,
        num_heads=HEADS,
        d_ff=64,
        d_kv=8,
        pad_token_id=0,
        decoder_start_token_id=0,
    )
    return build(lambda: hf.T5ForConditionalGeneration(config))


def vit() -> nn.Module:
    config = hf.ViTConfig(
        hidden_size=D,
        num_hidden_layers=L,
        num_attention_heads=HEADS,
        intermediate_size=64,
        image_size=16,
        patch_size=4,
        num_labels=10,
    )
    return build(lambda: hf.ViTForImageClassification(config))


def whisper() -> nn.Module:
    config = hf.WhisperConfig(
        vocab_size=V,
        d_model=D,
        encoder_layers=L,
        decoder_layers=2,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=1500,
        num_mel_bins=80,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        begin_suppress_tokens=None,
        suppress_tokens=None,
    )
    return build(lambda: hf.WhisperForConditionalGeneration(config))


class Block(nn.Module):
    """A linear layer with an activation, added to its input or not."""

    def __init__(self, residual: bool) -> None:
        super().__init__()
        self.linear, self.residual = nn.Linear(D, D), residual

    def forward(self, x: Tensor) -> Tensor:
        out = self.linear(x).relu()
        return x + out if self.residual else out


class MLP(nn.Module):
    def __init__(self, residual: bool, norm: bool) -> None:
        super().__init__()
        self.stem = nn.Linear(8, D)
        self.blocks = nn.ModuleList(Block(residual) for _ in range(L))
        self.out_scale = nn.LayerNorm(D) if norm else nn.Identity()
        self.head = nn.Linear(D, 3)

    def forward(self, x: Tensor) -> Tensor:
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
    Case("bert", bert, False),
    Case("roberta", roberta, False),
    Case("modernbert", modernbert, False),
    Case("albert", albert, False),
    Case("gpt2", gpt2, True),
    Case("gpt_neox", gpt_neox, True),
    Case("opt", opt, True),
    Case("llama", llama, True),
    Case("qwen3", qwen3, True),
    Case("mamba", mamba, True),
    Case("distilbert", distilbert, False),
    Case("electra", electra, False),
    Case("qwen2", qwen2, True),
    Case("mistral", mistral, True),
    Case("mixtral", mixtral, True),
    Case("gemma", gemma, True),
    Case("gemma2", gemma2, True),
    Case("gemma3", gemma3, True),
    Case("phi", phi, True),
    Case("phi3", phi3, True),
    Case("mamba2", mamba2, True),
]
