"""Augmented training images: a random crop with padding, a flip, a rotation."""

from __future__ import annotations

from typing import Any

from numpy.random import Generator

PADDING = 1 / 8
"""Of each side, as 4 of 32 pixels."""
FLIPPED = 0.5
DEGREES = 15.0


def augmented(image: Any, rng: Generator) -> Any:
    """Return a PIL image shifted by up to an eighth of each side, flipped half of the time, turned by up to ±15°.

    Source: Tracing Representation Progression, section 4 (vision models from scratch).
    """
    from PIL import Image

    width, height = image.size
    across, down = max(1, round(width * PADDING)), max(1, round(height * PADDING))
    left, top = rng.integers(-across, across + 1), rng.integers(-down, down + 1)
    found = image.crop((left, top, left + width, top + height))  # what lies outside is black
    if rng.random() < FLIPPED:
        found = found.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return found.rotate(rng.uniform(-DEGREES, DEGREES), resample=Image.Resampling.BILINEAR)
