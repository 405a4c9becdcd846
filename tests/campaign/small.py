"""A model of any type that transformers knows, built small from its config: by its numbers' names, and by trial."""

import re
import time

import torch
import transformers as hf
from campaign.feeding import feed, run, samples
from models.zoo import randomise_norms

from layerscope.models.modality import modality_of

LAYERS, HEADS, VOCABULARY = 3, 4, 99
MOST = 40_000_000
"""Parameters of a model that is still called small."""
SLOW = 0.5
"""Seconds of one forward from which a model is not small."""
SECONDS = 5.0
"""How long one type is tried."""

RULES = {
    r"(.*_)?vocab(ulary)?(_size)?(_.*)?|num_embeddings": VOCABULARY,
    r"max_length": 64,
    r"max_source_positions": 50,
    r"codebook_(size|dim)": 32,
    r"upsample_groups": 8,
    r"max_position_embeddings|n_positions|n_ctx|max_seq_len(gth)?|seq_length|context_length|max_2d_pos.*": 128,
    r"(num_|n_)?(hidden_|encoder_|decoder_|text_)*(layers?|blocks|depth)|num_(encoder|decoder)_blocks": LAYERS,
    r"(num_|n_)?(hidden_)?(key_value|kv)_heads|num_heads_kv|n_head_kv|.*num_key_value_heads": 2,
    r".*(attention_heads?|num_heads?|n_heads?|attn_heads|heads)": HEADS,
    r"qk_head_dim": 16,
    r".*head_dim|d_kv|dim_head|d_head|dim_per_head|kv_channels|(.*_)?head_size|rotary_dim": 8,
    r".*intermediate_(size|dim)|.*ffn_(dim|hidden.*)|d_ff|d_inner|n_inner|mlp_dim|.*feedforward.*|.*mlp_hidden.*": 64,
    r".*lora_rank.*": 16,
    r"(num_|n_)(routed_|local_)?experts|.*_num_experts": 4,
    r"num_experts_per_tok(en)?|moe_topk|moe_k|top_k|moe_top_k": 2,
    r"n_group|topk_group|num_expert_group|(n|num)_shared_experts|first_k_dense_replace": 1,
    r"sliding_window(_size)?|attention_window|local_attention|window_length": 16,
    r".*state_size|mamba_d_state": 8,
    r".*(image|img)_size|input_resolution|crop_size|image_resolution": 32,
    r"patch_size": 8,
    r"window_size": 4,
    r".*hidden_(size|dim|channels)(_.*)?|.*embed(ding)?_(dim|size)|.*proj(ection)?_(dim|size)": 32,
    r"d_model|n_embd|emb_dim|dim|(.*_)?output_dim|(model|encoder|decoder)_dim|.*_dims?|(.*_)?width|.*channels.*": 32,
    r"pooler_output_size": 32,
}
COMPILED = [(re.compile(pattern), value) for pattern, value in RULES.items()]
KEPT = re.compile(
    r".*(chunk_size_feed|num_channels|in_channels|audio_channels|num_labels|type_vocab|num_mel_bins|expand|"
    r"sampling_rate|_rate|stride|kernel|num_groups).*"
)
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


class NotSmall(ValueError):
    """A type that cannot be built small and run: the reason."""


def small_model(kind, name):
    """Return a model of a type, small and of random weights, that runs on what it reads; raise `NotSmall`."""
    if name == "VitsModel":
        raise NotSmall("how long its sounds are is drawn, up to minutes of computation")
    why, end = "its config cannot be made small", time.monotonic() + SECONDS
    for config in small_configs(hf.CONFIG_MAPPING[kind]):
        try:
            return running(build(getattr(hf, name), config))
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        if time.monotonic() > end:
            break
    raise NotSmall(why)


def running(model):
    """Return a model that runs on one sample, and not for long."""
    modality = modality_of(model)
    if modality == "audio":
        raise NotSmall("sounds are no part of the campaign")
    given = feed(model, modality, samples(modality, model, 1)[0])
    run(model, given)
    start = time.process_time()
    run(model, given)
    if time.process_time() > start + SLOW:
        raise NotSmall("one forward takes long")
    return model


def small_configs(kind):
    """Yield configs of a type, the likeliest to work first: all numbers shrunk, then each left as it is in turn."""
    default = kind()
    sizes = shrunk(default)
    rope = getattr(default, "rope_parameters", None) or {}
    left_out = [name for name, value in sizes.items() if isinstance(value, int)]
    for attempt in (
        sizes,
        sizes | SPECIAL,
        sizes | {"rope_parameters": rope | {"mrope_section": [2, 1, 1]}},
        *({key: sizes[key] for key in sizes.keys() - {name}} for name in left_out),
    ):
        try:
            config = kind(**attempt)
        except Exception:  # numbers that do not go together
            continue
        config._attn_implementation = "eager"
        yield config


def shrunk(config):
    """Return what a config's values become; those that stay as they are are left out."""
    found = {}
    special = iter(range(90, 99))
    for name, value in vars(config).items():
        new = value
        if isinstance(value, hf.PretrainedConfig):
            new = next(small_configs(type(value)), value)
        elif name in SPECIAL:
            new = SPECIAL[name] if value is not None else None
        elif re.fullmatch(r".*(token_id|token_index|token_idx)", name):
            new = next(special, 98) if isinstance(value, int) and value > 89 else value
        elif isinstance(value, dict) and "mrope_section" in value:
            new = value | {"mrope_section": [2, 1, 1]}
        elif isinstance(value, int) and not isinstance(value, bool):
            new = small(name, value)
        elif isinstance(value, list | tuple) and re.search("depths|blocks", name):
            new = [min(each, 2) for each in value]
        if new is not value and not name.startswith("_"):
            found[name] = new
    return found


def small(name, value):
    """Return a number as the first rule for its name has it, if that is less."""
    if value <= 0 or KEPT.fullmatch(name):
        return value
    return min(
        value, next((to for rule, to in COMPILED if rule.fullmatch(name)), value)
    )


def build(model_class, config):
    """Return a model of random weights, with norms that are not ones; raise `NotSmall` before it takes memory."""
    with torch.device("meta"):
        size = sum(p.numel() for p in model_class(config).parameters())
    if size > MOST:
        raise NotSmall(f"{size / 1e6:.0f} million parameters")
    if getattr(config, "mask_ratio", None):
        config.mask_ratio = 0.0  # masks are drawn at random, in evaluation as well
    torch.manual_seed(0)
    model = model_class(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            # what starts as zero would hide a block that does nothing
            if p.ndim > 1 and p.is_floating_point():
                p.add_(torch.randn_like(p) * 0.05)
    return randomise_norms(model)
