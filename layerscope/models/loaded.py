"""A model as loaded: the module, its processor, and what its makers say about how it is served."""

from dataclasses import dataclass, field
from typing import Any

from torch import nn

SERVED = ("SentenceTransformer", "CrossEncoder", "SparseEncoder")
"""The classes of sentence-transformers whose models are read."""


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
    served: Any = None  # the SentenceTransformer or SparseEncoder around the module, where there is one
    chat: bool = False  # whether the chat template is around every text
    reranker: Any = None  # the CrossEncoder around the module, where there is one

    @property
    def wrapper(self) -> str:
        """The class of sentence-transformers that serves the model."""
        around = self.served or self.reranker
        for kind in type(around).__mro__:
            if kind.__name__ in SERVED:
                return kind.__name__
        return SERVED[0]

    def processor_for(self, modality: str) -> Any:
        """Return what turns samples of this modality into inputs: of the processor of two towers, the part for it."""
        parts = {
            "text": "tokenizer",
            "ids": "tokenizer",
            "image": "image_processor",
            "audio": "feature_extractor",
        }
        processor = getattr(self.processor, parts.get(modality, ""), self.processor)
        if modality == "image" and hasattr(processor, "convert_tokens_to_ids"):
            return None
        return processor


def eager(model: Any) -> Any:
    """Return the model inside one that `torch.compile` gave: layers are read by hooks, and compiled code has none."""
    return getattr(model, "_modules", {}).get("_orig_mod", model)
