"""Runs of tiny models, and their states as a test sees them by its own hooks."""

from pathlib import Path
from typing import Any

import numpy as np
import tiny
import torch
from torch import Tensor, nn

import layerscope
from layerscope.runs import Run


def profile(model: nn.Module, data: Any, out: Path, **options: Any) -> Run:
    special = "bert" in type(model).__name__.lower()
    defaults = {
        "processor": tiny.tokenizer(special=special),
        "views": 0,
        "progress": False,
    }
    return layerscope.profile(model, data, out=out, **defaults | options)


@torch.no_grad()
def walk(model: nn.Module, text: str) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs of every block [L+1, T, D] of one text alone, seen by this test's own hooks, last state and logits."""
    bert = model.config.model_type == "bert"
    lists = {
        "bert": "bert.encoder.layer",
        "gpt2": "transformer.h",
        "llama": "model.layers",
    }
    blocks = model.get_submodule(lists[model.config.model_type])
    seen: list[Tensor] = []
    handles = [
        blocks[0].register_forward_pre_hook(
            lambda _, args: seen.append(args[0][0].clone())
        )
    ]

    def see(_: nn.Module, __: Any, out: Any) -> None:
        seen.append((out if isinstance(out, Tensor) else out[0])[0])

    handles += [block.register_forward_hook(see) for block in blocks]
    ids = torch.tensor([tiny.tokenizer(special=bert)(text)["input_ids"]])
    out = model(input_ids=ids, output_hidden_states=True)
    for handle in handles:
        handle.remove()
    states = torch.stack([x.reshape(-1, x.shape[-1]) for x in seen]).float()
    return states, out.hidden_states[-1][0].float(), out.logits[0]


def sinking(model: nn.Module) -> nn.Module:
    """Give the first token of a GPT-2 a massive activation in its first block."""

    def add(_: nn.Module, __: Any, out: Any) -> Any:
        hidden = (out if isinstance(out, Tensor) else out[0]).clone()
        hidden[:, 0, 3] += 1e5
        return hidden if isinstance(out, Tensor) else (hidden, *out[1:])

    model.transformer.h[0].register_forward_hook(add)
    return model


def by_sample(run: Run, metric: str, layer: int, site: str = "raw") -> np.ndarray:
    frame = run.samples()
    frame = frame[
        (frame["metric"] == metric)
        & (frame["layer"] == layer)
        & (frame["site"] == site)
    ]
    frame = frame[~frame["variant"].fillna("").str.contains("prefix")]
    return frame.sort_values("sample")["value"].to_numpy()
