"""A model of any type that transformers knows, built small from its config: by its numbers' names, and by trial."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import torch
import transformers as hf
from campaign.feeding import feed, run, samples
from models.zoo import randomise_norms
from torch import nn

from layerscope.models.modality import modality_of

LAYERS, HEADS, VOCABULARY = 3, 4, 99
MOST = 40_000_000
"""Parameters of a model that is still called small."""
SLOW = 0.5
"""Seconds of one forward from which a model is not small."""
LONG = {"VitsModel": "how long its sounds are is drawn, up to minutes of computation"}
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
TOKEN = re.compile(r".*(token_id|token_index|token_idx)$")
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


class NotSmall(ValueError):
    """A type that cannot be built small and run: the reason."""


def small_model(kind: str, name: str) -> nn.Module:
    """Return a model of a type, small and of random weights, that runs on what it reads; raise `NotSmall`."""
    if name in LONG:
        raise NotSmall(LONG[name])
    why, end = "its config cannot be made small", time.monotonic() + SECONDS
    try:
        attempts, model_class = (
            small_configs(hf.CONFIG_MAPPING[kind]),
            getattr(hf, name),
        )
    except Exception as error:
        raise NotSmall(line_of(error)) from error
    for number, config in enumerate(attempts):
        try:
            model: Any = build(model_class, config)
            modality = modality_of(model)
            if modality == "audio":
                raise NotSmall("sounds are no part of the campaign")
            took = _seconds(
                model, feed(model, modality, samples(modality, model, 1)[0])
            )
            if took > SLOW:
                raise NotSmall(f"one forward takes {took:.0f} s")
        except Exception as error:
            why = line_of(error) if number == 0 else why
        else:
            return model
        if time.monotonic() > end:
            break
    raise NotSmall(why)


def _seconds(model: nn.Module, given: dict[str, torch.Tensor]) -> float:
    """Return the processor time of a model's second forward."""
    run(model, given)
    start = time.process_time()
    run(model, given)
    return time.process_time() - start


def line_of(error: Exception) -> str:
    """Return an error in one line."""
    text = " ".join(str(error).split())
    return (
        text[:160]
        if isinstance(error, NotSmall)
        else f"{type(error).__name__}: {text}"[:160]
    )


def small_configs(kind: type[Any]) -> Iterator[Any]:
    """Yield configs of a type, the likeliest to work first: all numbers shrunk, then each left as it is in turn."""
    try:
        default = kind()
    except Exception as error:
        raise NotSmall(f"no default config, {line_of(error)}") from error
    given = shrunk(default)
    yield from _made(kind, given)
    yield from _made(kind, given | SPECIAL)
    rope = getattr(default, "rope_parameters", None)
    if isinstance(rope, dict):
        # half of a head
        yield from _made(
            kind, given | {"rope_parameters": rope | {"mrope_section": [2, 1, 1]}}
        )
    names = [
        name
        for name, value in given.items()
        if not isinstance(value, hf.PretrainedConfig)
    ]
    for name in sorted(names, key=lambda name: "head" not in name):
        yield from _made(
            kind, {key: value for key, value in given.items() if key != name}
        )


def _made(kind: type[Any], given: dict[str, Any]) -> Iterator[Any]:
    try:
        made = kind(**given)
    # numbers that do not go together: the next attempt leaves one as it was
    except Exception:
        return
    made._attn_implementation = "eager"
    yield made


def shrunk(config: Any) -> dict[str, Any]:
    """Return what a config's values become; those that stay as they are are left out."""
    depths = {
        value
        for name, value in vars(config).items()
        if isinstance(value, int) and _small(name, 99) == LAYERS
    }
    special = iter(range(90, 99))
    found: dict[str, Any] = {}
    for name, value in vars(config).items():
        if isinstance(value, hf.PretrainedConfig):
            found[name] = _nested(value)
        elif name in SPECIAL and isinstance(value, int) and value >= 0:
            found[name] = SPECIAL[name]
        elif TOKEN.fullmatch(name):
            found |= (
                {name: next(special, 98)}
                if isinstance(value, int) and value >= 90
                else {}
            )
        elif not name.startswith("_") and not KEPT.fullmatch(name):
            new = _value(name, value, depths)
            found |= {} if new == value else {name: new}
    if getattr(config, "num_key_value_heads", 0) == getattr(
        config, "num_attention_heads", 1
    ):
        found["num_key_value_heads"] = found.get("num_attention_heads", HEADS)
    derived = (
        ("num_layers", "hidden_size", "num_hidden_layers")
        if hasattr(config, "depths")
        else ()
    )
    return {name: value for name, value in found.items() if name not in derived}


def _nested(value: Any) -> Any:
    made = next(_made(type(value), shrunk(value)), value)
    for name in vars(value).keys() - vars(made).keys():  # what only a parent sets
        setattr(made, name, vars(value)[name])
    return made


def _value(name: str, value: Any, depths: set[int]) -> Any:
    if value is None and name in ("head_dim", "vocab_size", "num_experts_per_tok"):
        return _small(name, 99)
    if isinstance(value, int) and not isinstance(value, bool):
        return VOCABULARY if name == "vocab_size" else _small(name, value)
    if isinstance(value, dict) and "mrope_section" in value:
        return value | {"mrope_section": [2, 1, 1]}
    return (
        _list(name, list(value), depths)
        if isinstance(value, (list, tuple)) and value
        else value
    )


def _small(name: str, value: int) -> int:
    number = next(
        (number for pattern, number in COMPILED if pattern.fullmatch(name)), value
    )
    return min(value, number) if value > 0 else value


def _list(name: str, values: list[Any], depths: set[int]) -> list[Any]:
    """Shrink a list: an entry of each kind where it has one a layer, two layers a stage, widths that double."""
    whole = all(isinstance(v, int) and not isinstance(v, bool) for v in values)
    if (
        len(values) in depths
        and len(values) > LAYERS
        and (not whole or "layer" in name)
    ):
        firsts = [
            next(v for v in values if str(v) == kind)
            for kind in dict.fromkeys(map(str, values))
        ][:LAYERS]
        return (firsts * LAYERS)[:LAYERS]
    if not whole:
        return values
    if re.search(r"depth|blocks|^layers$|^num_layers$", name):
        return [min(v, 2) for v in values]
    if re.search(r"indices|indexes|_idx|layer_ids|out_features|layers", name):
        return [v for v in values if v < LAYERS] or [LAYERS - 1]
    if re.search(r"(image|img|input)_size", name):
        return [min(v, 32) for v in values]
    if re.search(r"heads", name):
        return [min(v, 2) for v in values]
    wide = (
        re.search(r"conv_dim|tdnn_dim|hidden_sizes|embed_dims?|dims|widths", name)
        and max(values) > 64
    )
    return (
        [max(v * 32 // min(values), 1) for v in values]
        if wide and min(values) > 32
        else values
    )


def build(model_class: type[Any], config: Any, seed: int = 0) -> nn.Module:
    """Return a model of random weights, with norms that are not ones; raise `NotSmall` before it takes memory."""
    with torch.device("meta"):
        size = sum(p.numel() for p in model_class(config).parameters())
    if size > MOST:
        raise NotSmall(f"{size / 1e6:.0f} million parameters")
    if getattr(config, "mask_ratio", None):
        config.mask_ratio = 0.0  # masks are drawn at random, in evaluation as well
    torch.manual_seed(seed)
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter in (
            model.parameters()
        ):  # what starts as zero would hide a block that does nothing
            if parameter.ndim > 1 and parameter.is_floating_point():
                parameter.add_(torch.randn_like(parameter) * 0.05)
    return randomise_norms(model)
