"""Each architecture walked by hand, block by block, on one unpadded sample: what the capture must equal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

Walk = tuple[list[Tensor], Callable[[Tensor], Tensor] | None]


def first(value: Any) -> Tensor:
    return value[0] if isinstance(value, tuple) else value


def _run(state: Tensor, blocks: Any, norm: Any, **kwargs: Any) -> Walk:
    states = [state]
    for block in blocks:
        states.append(first(block(states[-1], **kwargs)))
    return states, norm


def plainly(m: Any, x: Tensor, embeddings: str, blocks: str, norm: str = "") -> Walk:
    """Walk through what stands at three paths."""
    after = m.get_submodule(norm) if norm else None
    return _run(m.get_submodule(embeddings)(x), m.get_submodule(blocks), after)


def rotated(
    m: Any,
    ids: Tensor,
    core: str = "model",
    embed: str = "embed_tokens",
    norm: str = "norm",
) -> Walk:
    """Walk through blocks that are given rotations of positions."""
    inner = getattr(m, core)
    state = getattr(inner, embed)(ids)
    rotation = inner.rotary_emb(state, torch.arange(ids.shape[1])[None])
    extra = {"attention_mask": None, "position_embeddings": rotation}
    return _run(state, inner.layers, getattr(inner, norm), **extra)


def albert(m: Any, ids: Tensor) -> Walk:
    state = m.albert.encoder.embedding_hidden_mapping_in(
        m.albert.embeddings(input_ids=ids)
    )
    shared = m.albert.encoder.albert_layer_groups[0].albert_layers[0]
    return _run(state, [shared] * m.config.num_hidden_layers, None)


def modernbert(m: Any, ids: Tensor) -> Walk:
    core, n = m.model, ids.shape[1]
    distance = (torch.arange(n)[:, None] - torch.arange(n)[None]).abs()
    near = torch.zeros(n, n).masked_fill(
        distance > m.config.local_attention // 2, -torch.inf
    )[None, None]
    states = [core.embeddings(input_ids=ids)]
    for layer in core.layers:
        rotation = core.rotary_emb(
            states[-1], torch.arange(n)[None], layer.attention_type
        )
        mask = near if layer.attention_type == "sliding_attention" else None
        states.append(
            first(layer(states[-1], attention_mask=mask, position_embeddings=rotation))
        )
    return states, core.final_norm


def gpt2(m: Any, ids: Tensor) -> Walk:
    core = m.transformer
    return _run(core.wte(ids) + core.wpe(torch.arange(ids.shape[1])), core.h, core.ln_f)


def opt(m: Any, ids: Tensor) -> Walk:
    core = m.model.decoder
    # OPT's table starts at row 2
    positions = core.embed_positions.weight[2 : 2 + ids.shape[1]]
    return _run(core.embed_tokens(ids) + positions, core.layers, core.final_layer_norm)


def electra(m: Any, ids: Tensor) -> Walk:
    core = m.electra
    return _run(
        core.embeddings_project(core.embeddings(input_ids=ids)),
        core.encoder.layer,
        None,
    )


def gemma(m: Any, ids: Tensor) -> Walk:
    core, n = m.model, ids.shape[1]
    states = [core.embed_tokens.weight[ids] * m.config.hidden_size**0.5]
    kinds = getattr(m.config, "layer_types", None) or ["full_attention"] * len(
        core.layers
    )
    for layer, kind in zip(core.layers, kinds, strict=True):
        extra = (kind,) if m.config.model_type == "gemma3_text" else ()
        rotation = core.rotary_emb(states[-1], torch.arange(n)[None], *extra)
        mask = _past(n, m.config.sliding_window if kind == "sliding_attention" else n)
        states.append(
            first(layer(states[-1], attention_mask=mask, position_embeddings=rotation))
        )
    return states, core.norm


def _past(n: int, window: int) -> Tensor:
    """A mask that lets a position see itself and those before it, so many in all."""
    back = torch.arange(n)[:, None] - torch.arange(n)[None]
    hidden = (back < 0) | (back >= window)
    return torch.zeros(n, n).masked_fill(hidden, torch.finfo(torch.float32).min)[
        None, None
    ]


def t5_encoder(m: Any, ids: Tensor) -> Walk:
    return _t5(m.encoder, ids)


def t5_decoder(m: Any, ids: Tensor) -> Walk:
    n = ids.shape[1]
    causal = torch.zeros(n, n).masked_fill(
        torch.ones(n, n).triu(1).bool(), torch.finfo(torch.float32).min
    )[None, None]
    start = torch.full_like(ids[:, :1], m.config.decoder_start_token_id)
    source, norm = _t5(m.encoder, ids)
    assert norm is not None
    return _t5(m.decoder, torch.cat([start, ids[:, :-1]], 1), causal, norm(source[-1]))


def _t5(
    stack: Any, ids: Tensor, mask: Tensor | None = None, source: Tensor | None = None
) -> Walk:
    states = [stack.embed_tokens(ids)]
    bias = cross = None
    for block in stack.block:
        out = block(
            states[-1],
            attention_mask=mask,
            position_bias=bias,
            encoder_hidden_states=source,
            encoder_decoder_position_bias=cross,
        )
        states.append(out[0])
        bias = out[1]
        cross = out[2] if source is not None else None
    return states, stack.final_layer_norm


def whisper(m: Any, features: Tensor) -> Walk:
    core = m.model.encoder
    gelu = torch.nn.functional.gelu
    state = (
        gelu(core.conv2(gelu(core.conv1(features)))).transpose(1, 2)
        + core.embed_positions.weight
    )
    return _run(state, core.layers, core.layer_norm, attention_mask=None)


def mlp(m: Any, rows: Tensor) -> Walk:
    norm = m.out_scale if isinstance(m.out_scale, torch.nn.LayerNorm) else None
    return _run(m.stem(rows), m.blocks, norm)


bert = partial(plainly, embeddings="bert.embeddings", blocks="bert.encoder.layer")
roberta = partial(
    plainly, embeddings="roberta.embeddings", blocks="roberta.encoder.layer"
)
distilbert = partial(
    plainly, embeddings="distilbert.embeddings", blocks="distilbert.transformer.layer"
)
mamba = partial(
    plainly,
    embeddings="backbone.embeddings",
    blocks="backbone.layers",
    norm="backbone.norm_f",
)
vit = partial(
    plainly, embeddings="vit.embeddings", blocks="vit.layers", norm="vit.layernorm"
)
gpt_neox = partial(rotated, core="gpt_neox", embed="embed_in", norm="final_layer_norm")
phi = partial(rotated, norm="final_layernorm")
TEXT: dict[str, Callable[[Any, Tensor], Walk]] = {
    "bert": bert, "roberta": roberta, "modernbert": modernbert, "albert": albert, "gpt2": gpt2, "gpt_neox": gpt_neox,
    "opt": opt, "llama": rotated, "qwen3": rotated, "mamba": mamba, "distilbert": distilbert, "electra": electra,
    "qwen2": rotated, "mistral": rotated, "mixtral": rotated, "gemma": gemma, "gemma2": gemma, "gemma3": gemma,
    "phi": phi, "phi3": rotated, "mamba2": mamba,
}  # fmt: skip
