"""What reads a model's inputs in a training, and what a batch needs of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.models.load import load_processor


def find_processor(source: str, module: Any) -> Any:
    """Return what reads the model's inputs; images without a processor get one that says how they are read."""
    place = Path(source)
    source = str(place.parent.resolve()) if place.is_file() else source
    try:
        found = load_processor(source, module, {})
    except LayerscopeError as error:
        raise LayerscopeError(f"{error}, or name one with --processor") from error
    if found is None and getattr(module.config, "num_channels", 3) == 3:
        return _plain_images(module.config)
    return found


def _plain_images(config: Any) -> Any:
    """Return an image processor that resizes to the model's size and scales to -1 … 1."""
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    size = getattr(config, "image_size", 224)
    height, width = size if isinstance(size, (tuple, list)) else (size, size)
    return ViTImageProcessorPil(size={"height": height, "width": width}, image_mean=[0.5] * 3, image_std=[0.5] * 3)


def pad(module: Any, tokenizer: Any) -> list[str]:
    """Give a tokenizer and model that know no padding the end of a text for it, which a batch needs; return notes."""
    notes: list[str] = []
    if not hasattr(tokenizer, "pad_token_id"):
        return notes
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token is None:
            raise LayerscopeError("the tokenizer has neither a padding token nor an end token: give it a pad_token")
        tokenizer.pad_token = tokenizer.eos_token
        notes.append(f"padding: {tokenizer.eos_token!r}, for the tokenizer has no token of its own")
    if getattr(module.config, "pad_token_id", None) is None:
        module.config.pad_token_id = tokenizer.pad_token_id
    return notes
