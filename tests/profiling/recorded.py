"""States of tiny models as transformers records them, what changes them, and what a run keeps of each sample."""

import tiny
import torch
from models import walks
from torch import Tensor


@torch.no_grad()
def walk(model, text):
    """Return the states [L+1, T, D] of one text alone, the last as the head reads it, and its logits."""
    kind = model.config.model_type
    ids = torch.tensor([tiny.tokenizer(special=kind == "bert")(text)["input_ids"]])
    states, _ = walks.TEXT[kind](model, ids)
    out = model(input_ids=ids, output_hidden_states=True)
    return torch.cat(states).float(), out.hidden_states[-1][0].float(), out.logits[0]


def after_block(model, block, add):
    """Change what a block of a GPT-2 gives."""

    def change(_, __, out):
        whole = isinstance(out, Tensor)
        hidden = add((out if whole else out[0]).clone())
        return hidden if whole else (hidden, *out[1:])

    model.transformer.h[block].register_forward_hook(change)
    return model


def means(states):
    """Return the mean over its tokens of each text's states."""
    return torch.stack([z.mean(0) for z in states])


def values(function, states):
    """Return a metric of each text's states."""
    return [float(function(z)) for z in states]


def by_sample(run, metric, layer):
    """Return what a run keeps of each sample at a layer, `raw`."""
    frame = run.samples()
    frame = frame[
        (frame["metric"] == metric)
        & (frame["layer"] == layer)
        & (frame["site"] == "raw")
    ]
    frame = frame[~frame["variant"].fillna("").str.contains("prefix")]
    return frame.sort_values("sample")["value"].to_numpy()
