"""Turn images into the batches a model takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.core.errors import LayerscopeError
from layerscope.models.checks import clear_inputs
from layerscope.models.forward import Inputs, accepts


@dataclass
class ImageEncoder:
    """Images through an image processor or a function of one image; else resized to the model's size, scaled to -1 … 1.

    A model of one channel reads them in grey.
    """

    processor: Any
    module: nn.Module
    modality: str = "image"

    def lengths(self, samples: Iterable[Any]) -> list[int]:
        """Return 1 for each image: a processor gives all one size."""
        return [1 for _ in samples]

    def batch(self, samples: Sequence[Any]) -> Inputs:
        """Return pixel values [B, C, H, W]."""
        pixels = self._pixels(list(samples))
        if not hasattr(self.module, "main_input_name") and not accepts(self.module, "pixel_values"):
            return Inputs({}, pixels)  # a plain module, as timm's, whatever it calls them
        return Inputs({"pixel_values": pixels} | self._order(len(samples)))

    def _pixels(self, images: list[Any]) -> Tensor:
        if getattr(self._config(), "num_channels", 3) == 1:
            images = [image.convert("L") if hasattr(image, "convert") else image for image in images]
        if hasattr(self.processor, "model_input_names"):
            with clear_inputs(self.processor):
                found: Tensor = self.processor(images, return_tensors="pt")["pixel_values"]
            return found
        one = self._plain if self.processor is None else self._transformed
        return torch.stack([one(image) for image in images])

    def _transformed(self, image: Any) -> Tensor:
        """Return what a function of one image makes of it, as the transforms of timm and torchvision are."""
        try:
            pixels = self.processor(image)
        except Exception as error:  # whatever a function that is none of an image raises
            raise LayerscopeError(f"the `processor` failed on an image ({type(error).__name__}: {error})") from error
        if not isinstance(pixels, Tensor) or pixels.ndim != 3:
            given = tuple(pixels.shape) if isinstance(pixels, Tensor) else type(pixels).__name__
            raise LayerscopeError(f"the `processor` made {given} of an image: give a tensor [channels, height, width]")
        return pixels

    def _config(self) -> Any:
        """Return the settings of what reads images: of two towers, those of its own."""
        config = getattr(self.module, "config", None)
        return getattr(config, "vision_config", None) or config

    def _order(self, n: int) -> dict[str, Tensor]:
        """Return the noise that keeps the patches of a masked autoencoder in their own order."""
        config = self._config()
        size, patch = getattr(config, "image_size", None), getattr(config, "patch_size", None)
        if not accepts(self.module, "noise") or not isinstance(size, int) or not isinstance(patch, int):
            return {}
        patches = (size // patch) ** 2
        return {"noise": torch.arange(patches, dtype=torch.float32).expand(n, patches)}

    def _plain(self, image: Any) -> Tensor:
        import numpy as np

        config = self._config()
        size, channels = getattr(config, "image_size", 224), getattr(config, "num_channels", 3)
        height, width = size if isinstance(size, (tuple, list)) else (size, size)
        sized = image.convert("L" if channels == 1 else "RGB").resize((width, height))
        pixels = torch.from_numpy(np.array(sized, dtype="float32")) / 127.5 - 1.0
        return pixels.view(height, width, channels).permute(2, 0, 1)
