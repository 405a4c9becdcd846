"""Runs of tiny models, and their states as a test sees them by its own hooks."""

import tiny
import torch
from torch import Tensor

import layerscope


def profile(model, data, out, **options):
    special = "bert" in type(model).__name__.lower()
    defaults = {
        "processor": tiny.tokenizer(special=special),
        "views": 0,
    }
    return layerscope.profile(model, data, out=out, **defaults | options)


@torch.no_grad()
def walk(model, text):
    """Outputs of every block [L+1, T, D] of one text alone, seen by this test's own hooks, last state and logits."""
    bert = model.config.model_type == "bert"
    lists = {
        "bert": "bert.encoder.layer",
        "gpt2": "transformer.h",
        "llama": "model.layers",
    }
    blocks = model.get_submodule(lists[model.config.model_type])
    seen = []
    handles = [
        blocks[0].register_forward_pre_hook(
            lambda _, args: seen.append(args[0][0].clone())
        )
    ]

    def see(_, __, out):
        seen.append((out if isinstance(out, Tensor) else out[0])[0])

    handles += [block.register_forward_hook(see) for block in blocks]
    ids = torch.tensor([tiny.tokenizer(special=bert)(text)["input_ids"]])
    out = model(input_ids=ids, output_hidden_states=True)
    for handle in handles:
        handle.remove()
    states = torch.stack([x.reshape(-1, x.shape[-1]) for x in seen]).float()
    return states, out.hidden_states[-1][0].float(), out.logits[0]


def sinking(model):
    """Give the first token of a GPT-2 a massive activation in its first block."""

    def add(_, __, out):
        hidden = (out if isinstance(out, Tensor) else out[0]).clone()
        hidden[:, 0, 3] += 1e5
        return hidden if isinstance(out, Tensor) else (hidden, *out[1:])

    model.transformer.h[0].register_forward_hook(add)
    return model


def by_sample(run, metric, layer, site="raw"):
    frame = run.samples()
    frame = frame[
        (frame["metric"] == metric)
        & (frame["layer"] == layer)
        & (frame["site"] == site)
    ]
    frame = frame[~frame["variant"].fillna("").str.contains("prefix")]
    return frame.sort_values("sample")["value"].to_numpy()
