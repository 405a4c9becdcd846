"""What turns samples into the inputs of a model, loaded from beside it."""

from contextlib import suppress
from typing import Any

from torch import nn

from layerscope.core import LayerscopeError, first_line
from layerscope.models.modality import modalities_of


def load_processor(source: str, module: nn.Module, trust: dict[str, Any]) -> Any:
    """Return the tokenizer, image processor (None where there is none) or feature extractor beside a model."""
    import transformers

    if modalities_of(module) == ["text", "image"]:
        with suppress(Exception):  # what is there may be damaged
            both = transformers.AutoProcessor.from_pretrained(source, **trust)
            if hasattr(both, "tokenizer") and hasattr(both, "image_processor"):
                return both
    kind = getattr(module, "main_input_name", "input_ids")
    if kind == "pixel_values":
        with suppress(Exception):
            return transformers.AutoImageProcessor.from_pretrained(
                source, backend="pil", **trust
            )
        return None
    what = "feature extractor"
    auto = transformers.AutoFeatureExtractor
    if kind == "input_ids":
        what = "tokenizer"
        auto = transformers.AutoTokenizer
    try:
        processor = auto.from_pretrained(source, **trust)
        if what == "tokenizer":
            _check_tokenizer(processor)
        return processor
    except Exception as error:  # a damaged tokenizer.json raises a bare one
        raise LayerscopeError(
            f"{source!r} has no {what} that can be loaded ({first_line(error, 120)}): save one with the model"
        ) from error


def _check_tokenizer(tokenizer: Any) -> None:
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):
        raise ValueError("there is none")  # transformers makes up an empty one
    if not isinstance(tokenizer.model_max_length, (int, float)):
        raise ValueError(f"its model_max_length is {tokenizer.model_max_length!r}")
