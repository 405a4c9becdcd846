"""What a model reads: made-up texts and images, and the same as its own forward takes them, one at a time."""

import inspect

import numpy as np
import torch
from PIL import Image

LENGTHS = (12, 5, 9, 7, 1, 12)


def samples(modality, model, n=6):
    """Return texts of whole words, or images of the model's size."""
    draw = np.random.default_rng(0)
    if modality == "text":
        words = (draw.integers(0, 80, LENGTHS[i % len(LENGTHS)]) for i in range(n))
        return [" ".join(f"w{word}" for word in text) for text in words]
    config = getattr(model.config, "vision_config", None) or model.config
    size = getattr(config, "image_size", None) or 224
    if isinstance(size, int):
        size = (size, size)
    pixels = draw.integers(0, 256, (n, *size, 3), np.uint8)
    return [Image.fromarray(image, "RGB") for image in pixels]


def feed(model, modality, sample):
    """Return one sample as the model's own forward takes it."""
    if modality == "text":
        ids = torch.tensor([[1, *[int(word[1:]) + 4 for word in sample.split()], 2]])
        start = getattr(model.config, "decoder_start_token_id", None) or 0
        shifted = torch.cat([torch.full_like(ids[:, :1], start), ids[:, :-1]], 1)
        named = {"input_ids": ids, "decoder_input_ids": shifted}
        masks = ("attention_mask", "decoder_attention_mask")
        return named | dict.fromkeys(masks, torch.ones_like(ids))
    config = getattr(model.config, "vision_config", None) or model.config
    if getattr(config, "num_channels", 3) == 1:
        sample = sample.convert("L")
    pixels = torch.from_numpy(np.array(sample, "float32")) / 127.5 - 1.0
    pixels = pixels.view(*pixels.shape[:2], -1).permute(2, 0, 1)[None]
    patch, patches = getattr(config, "patch_size", None), 1
    if isinstance(patch, int):
        patches = (sample.width // patch) * (sample.height // patch)
    # of a masked autoencoder: no shuffle
    noise = torch.arange(patches, dtype=torch.float32)[None]
    return {"pixel_values": pixels, "noise": noise}


@torch.no_grad()
def run(model, given):
    """Run a model on what its forward names of an input; one that needs a second modality is given that too."""
    try:
        return model(**fitting(model, given))
    except Exception:  # it needs something else besides
        if not hasattr(model, "config"):
            raise
    both = {}
    for modality in ("text", "image"):
        both |= feed(model, modality, samples(modality, model, 1)[0])
    boxes = torch.ones(*both["input_ids"].shape, 4, dtype=torch.long)
    for name in ("decoder_input_ids", "decoder_attention_mask"):
        del both[name]
    return model(**fitting(model, both | {"bbox": boxes} | given))


def fitting(model, given):
    named = inspect.signature(type(model).forward).parameters
    inputs = {name: given[name] for name in given.keys() & named}
    if "use_cache" in named:
        inputs["use_cache"] = False
    return inputs
