"""What turns samples into a model's inputs, loaded from beside it."""

from __future__ import annotations

from typing import Any

from torch import nn

from layerscope.core.errors import LayerscopeError
from layerscope.models.encode import modalities_of


def load_processor(source: str, module: nn.Module, trust: dict[str, Any]) -> Any:
    """Return the tokenizer, image processor (None where there is none) or feature extractor beside a model."""
    import transformers

    if modalities_of(module) == ["text", "image"] and (both := _both(source, trust)) is not None:
        return both
    kind = getattr(module, "main_input_name", "input_ids")
    auto, more = {
        "input_ids": (transformers.AutoTokenizer, {}),
        "pixel_values": (transformers.AutoImageProcessor, {"backend": "pil"}),
    }.get(kind, (transformers.AutoFeatureExtractor, {}))
    try:
        processor = auto.from_pretrained(source, **trust, **more)
        if kind == "input_ids" and len(processor) <= len(set(processor.all_special_ids)):
            raise ValueError("there is none")  # transformers makes up an empty one
        if not isinstance(getattr(processor, "model_max_length", 0), (int, float)):
            raise ValueError(f"its model_max_length is {processor.model_max_length!r}")
        return processor
    except Exception as error:  # a damaged tokenizer.json raises a bare one
        if kind == "pixel_values":
            return None
        what = "tokenizer" if kind == "input_ids" else "feature extractor"
        line = (str(error).strip().splitlines() or [""])[0][:120].rstrip()
        why = "" if not line or line.endswith(":") else f" ({line})"  # the first line of a list tells nothing
        raise LayerscopeError(f"{source!r} has no {what} that can be loaded{why}: save it beside the model") from error


def _both(source: str, trust: dict[str, Any]) -> Any:
    """Return the processor of a model of texts and images, None where there is none that holds both."""
    import transformers

    try:
        found = transformers.AutoProcessor.from_pretrained(source, **trust)
    except Exception:  # what is there may be damaged
        return None
    return found if hasattr(found, "tokenizer") and hasattr(found, "image_processor") else None
