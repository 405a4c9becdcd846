from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError


def to_rgb(image: Any) -> Any:
    """Return a PIL image as 8-bit RGB, upright; 16-bit greys are scaled, not clipped."""
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        grey = np.asarray(image).astype(np.float64) / 257.0
        image = Image.fromarray(np.clip(np.rint(grey), 0, 255).astype(np.uint8))
    return image.convert("RGB")


def read_image(file: Path | bytes) -> Any:
    """Read an image file as an RGB PIL image; raises what Pillow raises where it is broken."""
    from PIL import Image

    with Image.open(BytesIO(file) if isinstance(file, bytes) else file) as image:
        return to_rgb(image)


def array_image(array: Any) -> Any:
    """Return `[H, W]` or `[H, W, 1|3|4]` numbers as an RGB PIL image; floats in 0..1, integers in 0..255."""
    from PIL import Image

    pixels = np.asarray(array)
    if pixels.ndim == 3 and pixels.shape[2] not in (1, 3, 4) and pixels.shape[0] in (1, 3, 4):
        pixels = np.moveaxis(pixels, 0, 2)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in (3, 4)):
        raise LayerscopeError(f"an array of shape {pixels.shape} is not an image: give [H, W] or [H, W, 3]")
    if not np.issubdtype(pixels.dtype, np.integer):
        if not (np.isfinite(pixels).all() and pixels.min() >= 0 and pixels.max() <= 1):
            raise LayerscopeError("an image of floats has values outside 0..1: scale it, or give uint8")
        pixels = np.rint(pixels * 255)
    return to_rgb(Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)))


def image_fault(file: Path | bytes) -> str | None:
    """Return why an image file cannot be used, without decoding its pixels, or None."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(BytesIO(file) if isinstance(file, bytes) else file) as image:
            kind = image.format
            image.verify()
    except Exception as error:  # Pillow's readers raise whatever their parser meets
        return "it is not an image" if isinstance(error, UnidentifiedImageError) else str(error)
    # Pillow verifies a PNG's checksums but only a JPEG's header: a cut one lacks its end marker.
    return "it is cut short" if kind == "JPEG" and b"\xff\xd9" not in _tail(file) else None


def _tail(file: Path | bytes, size: int = 65536) -> bytes:
    if isinstance(file, bytes):
        return file[-size:]
    with file.open("rb") as stream:
        stream.seek(-min(size, file.stat().st_size), 2)
        return stream.read()
