"""What a model reads: made-up samples of its modality, and the same as its own forward takes them, one at a time."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import transformers as hf
from PIL import Image
from tiny import tokenizer
from torch import Tensor

from layerscope.inputs import Waveform

SOUND_RATE = 16000
LENGTHS = (12, 5, 9, 7, 1, 12)


def samples(modality: str, model: Any, n: int = 6) -> list[Any]:
    """Return texts of whole words, images of the model's size, or sounds of several lengths."""
    draw = np.random.default_rng(0)
    if modality == "text":
        return [
            " ".join(f"w{j}" for j in draw.integers(0, 80, LENGTHS[i % len(LENGTHS)]))
            for i in range(n)
        ]
    if modality == "image":
        height, width = image_size(model)
        return [
            Image.fromarray(draw.integers(0, 256, (height, width, 3), np.uint8), "RGB")
            for _ in range(n)
        ]
    lengths = [SOUND_RATE - 3000 * (i % 3) for i in range(n)]
    return [
        Waveform((draw.standard_normal(length) * 0.1).astype(np.float32), SOUND_RATE)
        for length in lengths
    ]


def image_size(model: Any) -> tuple[int, int]:
    config = getattr(model.config, "vision_config", None) or model.config
    size = getattr(config, "image_size", None) or 224
    return tuple(size) if isinstance(size, (tuple, list)) else (size, size)


def processor(model: Any) -> Any:
    """Return what a model as an object is given: a feature extractor of sounds, else the tests' tokenizer."""
    main = getattr(model, "main_input_name", "input_ids")
    return (
        extractor(model)
        if main in ("input_values", "input_features")
        else tokenizer(special=True)
    )


def extractor(model: Any) -> Any:
    from transformers.models.auto.feature_extraction_auto import (
        FEATURE_EXTRACTOR_MAPPING_NAMES as NAMES,
    )

    kind = model.config.model_type
    made = getattr(
        hf,
        NAMES.get(kind)
        or NAMES.get(kind.removesuffix("_encoder"))
        or "Wav2Vec2FeatureExtractor",
    )
    audio = getattr(model.config, "audio_config", None) or model.config
    bins = getattr(audio, "num_mel_bins", None)
    # at 50 a second
    window = (
        {"chunk_length": 1}
        if getattr(audio, "max_source_positions", None) == 50
        else {}
    )
    window |= {"max_length": audio.max_length} if hasattr(audio, "max_length") else {}
    for options in (
        ({"feature_size": bins, "num_mel_bins": bins}, {"feature_size": bins})
        if bins
        else ()
    ):
        try:
            return made(**options, **window)
        except Exception:  # an extractor that counts its bins otherwise
            continue
    return made()


def feed(model: Any, modality: str, sample: Any) -> dict[str, Tensor]:
    """Return one sample as the model's own forward takes it."""
    if modality == "text":
        ids = torch.tensor([[1, *[int(word[1:]) + 4 for word in sample.split()], 2]])
        start = getattr(model.config, "decoder_start_token_id", None) or 0
        shifted = torch.cat([torch.full_like(ids[:, :1], start), ids[:, :-1]], 1)
        ones = torch.ones_like(ids)
        found = {"input_ids": ids, "attention_mask": ones}
        return found | {"decoder_input_ids": shifted, "decoder_attention_mask": ones}
    if modality == "image":
        config = getattr(model.config, "vision_config", None) or model.config
        image = (
            sample.convert("L") if getattr(config, "num_channels", 3) == 1 else sample
        )
        pixels = torch.from_numpy(np.array(image, "float32")) / 127.5 - 1.0
        found = {
            "pixel_values": pixels.view(*pixels.shape[:2], -1).permute(2, 0, 1)[None]
        }
        patch = getattr(config, "patch_size", None)
        patches = (
            (image.width // patch) * (image.height // patch)
            if isinstance(patch, int)
            else 1
        )
        # of a masked autoencoder: no shuffle
        return found | {"noise": torch.arange(patches, dtype=torch.float32)[None]}
    options = {"sampling_rate": SOUND_RATE, "return_tensors": "pt"}
    try:
        out = extractor(model)([sample.samples], return_attention_mask=True, **options)
    except TypeError:  # one that knows no mask
        out = extractor(model)([sample.samples], **options)
    found = {key: value for key, value in out.items() if isinstance(value, Tensor)}
    if "attention_mask" in found:
        found["input_features_mask"] = found["attention_mask"]
    start = getattr(model.config, "decoder_start_token_id", None) or 0
    return found | {"decoder_input_ids": torch.full((1, 1), start)}


@torch.no_grad()
def run(model: Any, given: dict[str, Tensor]) -> Any:
    """Run a model on what its forward names of an input; one that needs a second modality is given that too."""
    error: Exception | None = None
    for more in _more(model):
        try:
            return model(**fitting(model, more | given))
        except Exception as raised:  # it needs something else besides
            error = error or raised
    raise error or RuntimeError("nothing to run on")


def _more(model: Any) -> Iterator[dict[str, Tensor]]:
    yield {}
    if not hasattr(model, "config"):
        return
    towers = {
        "text": samples("text", model, 1)[0],
        "image": samples("image", model, 1)[0],
    }
    both: dict[str, Tensor] = {}
    for modality, sample in towers.items():
        both |= feed(model, modality, sample)
    both.pop("decoder_input_ids")
    both.pop("decoder_attention_mask")
    yield both
    yield both | {"bbox": torch.ones(*both["input_ids"].shape, 4, dtype=torch.long)}


def fitting(model: Any, given: dict[str, Tensor]) -> dict[str, Any]:
    named = inspect.signature(type(model).forward).parameters
    found: dict[str, Any] = {key: value for key, value in given.items() if key in named}
    return found | ({"use_cache": False} if "use_cache" in named else {})
