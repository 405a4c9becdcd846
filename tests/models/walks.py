"""The states of every layer as transformers records them, on one unpadded sample: what the capture must equal."""

from functools import partial

import torch


def first(value):
    return value[0] if isinstance(value, tuple) else value


def by_hand(state, blocks, norm):
    states = [state]
    for block in blocks:
        states.append(first(block(states[-1])))
    return states, norm


@torch.no_grad()
def recorded(m, norm, kind="hidden_states", **inputs):
    """Return what transformers records; the last state is that which the final norm, if any, is given."""
    read = []
    module = m.get_submodule(norm)
    hook = module.register_forward_pre_hook(lambda _, args: read.extend(args))
    states = list(getattr(m(**inputs, output_hidden_states=True), kind))
    hook.remove()
    if not norm:
        return states, None
    return [*states[:-1], read[0]], module


def of_text(norm, m, ids):
    return recorded(m, norm, input_ids=ids)


def mamba(m, ids):
    core = m.backbone
    return by_hand(core.embeddings(ids), core.layers, core.norm_f)


def t5_encoder(m, ids):
    return recorded(m.encoder, "final_layer_norm", input_ids=ids)


def t5_decoder(m, ids):
    start = torch.full_like(ids[:, :1], m.config.decoder_start_token_id)
    shifted = torch.cat([start, ids[:, :-1]], 1)
    inputs = {"input_ids": ids, "decoder_input_ids": shifted}
    return recorded(m, "decoder.final_layer_norm", "decoder_hidden_states", **inputs)


def whisper(m, features):
    return recorded(m.model.encoder, "layer_norm", input_features=features)


def vit(m, pixels):
    return recorded(m, "vit.layernorm", pixel_values=pixels)


def mlp(m, rows):
    norm = m.out_scale if isinstance(m.out_scale, torch.nn.LayerNorm) else None
    return by_hand(m.stem(rows), m.blocks, norm)


NORMS = {
    "bert": "", "roberta": "", "modernbert": "model.final_norm", "albert": "", "gpt2": "transformer.ln_f",
    "gpt_neox": "gpt_neox.final_layer_norm", "opt": "model.decoder.final_layer_norm", "distilbert": "", "electra": "",
    "phi": "model.final_layernorm",
}  # fmt: skip
ROTATED = (
    "llama", "qwen2", "qwen3", "mistral", "mixtral", "gemma", "gemma2", "gemma3", "phi3"
)  # fmt: skip
NORMS |= dict.fromkeys(ROTATED, "model.norm")
TEXT = {name: partial(of_text, norm) for name, norm in NORMS.items()}
TEXT |= {"mamba": mamba, "mamba2": mamba}
bert, albert = TEXT["bert"], TEXT["albert"]
