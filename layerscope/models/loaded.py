"""What loading a model takes and gives: how weights are fetched, and the model with its processor."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from layerscope.core.errors import LayerscopeError


@dataclass
class Loaded:
    """A model as loaded: the module, its processor, and what its makers say about how it is served."""

    module: nn.Module
    processor: Any = None
    name: str = ""
    revision: str | None = None
    pooling: tuple[str, ...] | None = None  # a SentenceTransformer's own
    max_length: int | None = None
    prompt: str = ""
    notes: list[str] = field(default_factory=list)
    lack: str = ""  # why a text model has no tokenizer, where it has none
    served: Any = None  # the SentenceTransformer around the module, where there is one

    def processor_for(self, modality: str) -> Any:
        """Return what turns samples of this modality into inputs: of the processor of two towers, the part for it."""
        part = {"text": "tokenizer", "image": "image_processor", "audio": "feature_extractor"}.get(modality, "")
        found = getattr(self.processor, part, self.processor)
        return None if modality == "image" and hasattr(found, "convert_tokens_to_ids") else found


@dataclass(frozen=True)
class LoadOptions:
    """How weights are fetched, placed and trusted; with `as_stored` the dtype `auto` is the checkpoint's everywhere."""

    revision: str | None = None
    dtype: str = "auto"
    device: str = "auto"
    trust_remote_code: bool = False
    allow_pickle: bool = False
    as_stored: bool = False

    def torch_device(self) -> torch.device:
        """Return the device; raise where it is not there."""
        if self.device in ("auto", "map"):
            return own_device() if torch.cuda.is_available() else torch.device("cpu")
        try:
            device = torch.device(self.device)
            torch.empty(1, device=device).cpu()
        except Exception:  # each kind of device fails in its own way
            here = ["auto", "cpu", *[f"cuda:{i}" for i in range(torch.cuda.device_count())], "map"]
            raise LayerscopeError(f"device {self.device!r} is not on this machine: choose {', '.join(here)}") from None
        return device

    def torch_dtype(self) -> torch.dtype | str:
        """Return the dtype of the weights; `auto` is float32 on a CPU and the checkpoint's own elsewhere."""
        if self.dtype == "auto":
            return torch.float32 if self.torch_device().type == "cpu" and not self.as_stored else "auto"
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype


def own_device() -> torch.device:
    """Return the GPU of this process: of several that a launcher started, each has its own as far as there are any."""
    rank = os.environ.get("LOCAL_RANK")
    return torch.device("cuda" if rank is None else f"cuda:{int(rank) % torch.cuda.device_count()}")


def eager(model: Any) -> Any:
    """Return the model inside one that `torch.compile` gave: layers are read by hooks, and compiled code has none."""
    return vars(model)["_modules"]["_orig_mod"] if "_orig_mod" in getattr(model, "_modules", {}) else model
