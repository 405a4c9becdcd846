"""Weights of a checkpoint whose names on disk are not those in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open
from transformers import PreTrainedModel

from layerscope.models.mean_head import standard_class


def load_renamed(model: Any, checkpoint: Path) -> None:
    """Load the weights of a checkpoint that were saved under other names than the model has for them.

    transformers saves a ViT and others under the names of older releases. Its `from_pretrained` knows both names, but
    its Trainer looks for those in memory alone, and passes the others over without an error.
    """
    saved = _names(checkpoint)
    missing = {name for name in model.state_dict() if name not in saved}
    if not isinstance(model, PreTrainedModel) or not saved or not missing:
        return
    loaded = standard_class(type(model)).from_pretrained(checkpoint, dtype="auto", local_files_only=True).state_dict()
    model.load_state_dict({name: loaded[name] for name in missing if name in loaded}, strict=False)
    model.tie_weights()


def _names(checkpoint: Path) -> set[str]:
    index, whole = checkpoint / "model.safetensors.index.json", checkpoint / "model.safetensors"
    if index.is_file():
        return set(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
    if not whole.is_file():
        return set()
    with safe_open(whole, framework="pt") as file:
        return set(file.keys())
