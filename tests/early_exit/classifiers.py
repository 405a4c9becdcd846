"""Tiny random classifiers of every family, and what they end at a layer, built without the exits' code."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from tiny import seeded, texts, tokenizer
from torch import Tensor, nn

from layerscope.early_exit.exit_model import ExitModel
from layerscope.inputs import Waveform
from layerscope.models.forward import Inputs
from layerscope.models.stack import module_at

D, L, HEADS, CLASSES = 32, 4, 4, 5
SIZES = {
    "hidden_size": D,
    "num_hidden_layers": L,
    "num_attention_heads": HEADS,
    "intermediate_size": 48,
}
TEXT = SIZES | {
    "vocab_size": 94,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "num_labels": CLASSES,
}
IMAGE = SIZES | {"image_size": 16, "patch_size": 4, "num_labels": CLASSES}
SOUND = SIZES | {
    "conv_dim": (16, 16),
    "conv_kernel": (10, 8),
    "conv_stride": (8, 8),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "num_labels": CLASSES,
    "num_feat_extract_layers": 2,
}
STABLE = {"do_stable_layer_norm": True, "feat_extract_norm": "layer"}
Made = tuple[nn.Module, Any]


def _text(make: Any, config: Any, **options: Any) -> Callable[[], Made]:
    return lambda: (seeded(make, config(**TEXT | options)), tokenizer(special=True))


def _image(make: Any, config: Any, **options: Any) -> Callable[[], Made]:
    return lambda: (seeded(make, config(**IMAGE | options)), None)


def _sound(make: Any, config: Any, **options: Any) -> Callable[[], Made]:
    extractor = hf.Wav2Vec2FeatureExtractor(return_attention_mask=True)
    return lambda: (seeded(make, config(**SOUND | options)), extractor)


POSITIONS = {"max_position_embeddings": 64}
CASES: dict[str, Callable[[], Made]] = {
    "bert": _text(hf.BertForSequenceClassification, hf.BertConfig, **POSITIONS),
    "roberta": _text(
        hf.RobertaForSequenceClassification,
        hf.RobertaConfig,
        pad_token_id=0,
        max_position_embeddings=66,
    ),
    "distilbert": _text(
        hf.DistilBertForSequenceClassification,
        hf.DistilBertConfig,
        dim=D,
        n_layers=L,
        n_heads=HEADS,
        hidden_dim=48,
        max_position_embeddings=64,
    ),
    "electra": _text(
        hf.ElectraForSequenceClassification, hf.ElectraConfig, embedding_size=16, **POSITIONS
    ),
    "albert": _text(
        hf.AlbertForSequenceClassification, hf.AlbertConfig, embedding_size=16, **POSITIONS
    ),
    "deberta": _text(
        hf.DebertaV2ForSequenceClassification,
        hf.DebertaV2Config,
        relative_attention=True,
        position_buckets=8,
        pos_att_type=["p2c", "c2p"],
        **POSITIONS,
    ),
    "mpnet": _text(hf.MPNetForSequenceClassification, hf.MPNetConfig, max_position_embeddings=66),
    "modernbert": _text(
        hf.ModernBertForSequenceClassification,
        hf.ModernBertConfig,
        cls_token_id=1,
        sep_token_id=2,
        global_attn_every_n_layers=2,
        local_attention=8,
        classifier_pooling="mean",
    ),
    "gpt2": _text(
        hf.GPT2ForSequenceClassification,
        hf.GPT2Config,
        n_embd=D,
        n_layer=L,
        n_head=HEADS,
        n_positions=64,
    ),
    "gpt_neox": _text(hf.GPTNeoXForSequenceClassification, hf.GPTNeoXConfig, **POSITIONS),
    "opt": _text(
        hf.OPTForSequenceClassification,
        hf.OPTConfig,
        ffn_dim=48,
        word_embed_proj_dim=D,
        **POSITIONS,
    ),
    "bloom": _text(hf.BloomForSequenceClassification, hf.BloomConfig, n_layer=L, n_head=HEADS),
    "llama": _text(hf.LlamaForSequenceClassification, hf.LlamaConfig, num_key_value_heads=2),
    "qwen3": _text(
        hf.Qwen3ForSequenceClassification, hf.Qwen3Config, num_key_value_heads=2, head_dim=8
    ),
    "mistral": _text(
        hf.MistralForSequenceClassification,
        hf.MistralConfig,
        num_key_value_heads=2,
        sliding_window=8,
    ),
    "gemma2": _text(
        hf.Gemma2ForSequenceClassification,
        hf.Gemma2Config,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=8,
    ),
    "mixtral": _text(
        hf.MixtralForSequenceClassification,
        hf.MixtralConfig,
        num_key_value_heads=2,
        num_local_experts=3,
    ),
    "vit": _image(hf.ViTForImageClassification, hf.ViTConfig),
    "deit": _image(hf.DeiTForImageClassification, hf.DeiTConfig),
    "beit": _image(hf.BeitForImageClassification, hf.BeitConfig, use_relative_position_bias=True),
    "dinov2": _image(hf.Dinov2ForImageClassification, hf.Dinov2Config, mlp_ratio=2),
    "wav2vec2": _sound(hf.Wav2Vec2ForSequenceClassification, hf.Wav2Vec2Config, **STABLE),
    "hubert": _sound(hf.HubertForSequenceClassification, hf.HubertConfig, **STABLE),
    "wavlm": _sound(hf.WavLMForSequenceClassification, hf.WavLMConfig, **STABLE),
    "wav2vec2-group": _sound(hf.Wav2Vec2ForSequenceClassification, hf.Wav2Vec2Config),
    "whisper": lambda: (
        seeded(
            hf.WhisperForAudioClassification,
            hf.WhisperConfig(
                d_model=D,
                encoder_layers=L,
                encoder_attention_heads=HEADS,
                encoder_ffn_dim=48,
                num_mel_bins=80,
                max_source_positions=100,
                num_labels=CLASSES,
                decoder_layers=1,
                vocab_size=94,
                pad_token_id=0,
                bos_token_id=1,
                eos_token_id=2,
                decoder_start_token_id=1,
            ),
        ),
        hf.WhisperFeatureExtractor(chunk_length=2),
    ),
    "ast": lambda: (
        seeded(
            hf.ASTForAudioClassification,
            hf.ASTConfig(
                **SIZES,
                num_labels=CLASSES,
                max_length=64,
                num_mel_bins=32,
                patch_size=8,
            ),
        ),
        hf.ASTFeatureExtractor(max_length=64, num_mel_bins=32),
    ),
}


def samples_for(model: ExitModel, n: int, seed: int = 0) -> list[Any]:
    """Seeded samples of the model's modality, of different lengths where it has any; the first is the longest."""
    modality = model.layered.encoder.modality
    if modality == "text":
        return ["w1 " * 28, *texts(n - 1, seed, 20)]
    generator = torch.Generator().manual_seed(seed)
    if modality == "image":
        from PIL import Image

        pixels = torch.randint(
            0, 256, (n, 16, 16, 3), generator=generator, dtype=torch.uint8
        ).numpy()
        return [Image.fromarray(one) for one in pixels]
    lengths = [6000, *torch.randint(2000, 5000, (n - 1,), generator=generator).tolist()]
    return [
        Waveform((torch.randn(size, generator=generator) * 0.1).numpy(), 16000) for size in lengths
    ]


def batch_for(model: ExitModel, n: int, seed: int = 0) -> Inputs:
    return model.layered.encoder.batch(samples_for(model, n, seed))


def truncated(model: ExitModel, layer: int) -> nn.Module:
    """The classifier whose list of blocks ends at a layer; of a shared block, that runs it so many times."""
    blocks = model.layered.stack.blocks
    copied = copy.deepcopy(model.model)
    if len(set(blocks)) == 1:
        copied.config.num_hidden_layers = layer
        return copied.eval()
    parent, _, _ = blocks[0].rpartition(".")
    owner, _, name = parent.rpartition(".")
    setattr(module_at(copied, owner, ""), name, module_at(copied, parent, "")[:layer])
    copied.config.num_hidden_layers = layer
    return copied.eval()


def leaving(layers: Tensor) -> Any:
    return lambda layer, logits, rows: layers[rows.cpu()] == layer


def close(one: Tensor, two: Tensor) -> None:
    torch.testing.assert_close(one.float(), two.float(), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def plain(model: nn.Module, inputs: Inputs) -> Tensor:
    return model(**inputs.named).logits


def state_of(model: nn.Module) -> tuple[Any, ...]:
    """What must not change: configuration, hooks, replaced forwards, training mode."""
    hooks = (
        "_forward_hooks",
        "_forward_pre_hooks",
        "_backward_hooks",
        "_forward_hooks_with_kwargs",
    )
    modules = [
        (
            name,
            "forward" in vars(child),
            child.training,
            *(len(getattr(child, hook)) for hook in hooks),
        )
        for name, child in model.named_modules()
    ]
    return copy.deepcopy(model.config.to_dict()), modules
