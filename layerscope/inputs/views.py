from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError, choices
from layerscope.inputs.samples import Modality, Waveform, Window
from layerscope.inputs.text_views import TEXT_CHANGES, change_words

DEFAULT_SHARE = 0.1


def augment(
    sample: Any,
    modality: Modality,
    *,
    kinds: Sequence[str] | None = None,
    share: float = DEFAULT_SHARE,
    seed: int,
    sample_id: int,
    view: int,
) -> Any:
    """Return an augmented view of a sample, which depends on seed, sample number and view number alone.

    `kinds` are names of `VIEW_KINDS[modality]`, by default all of them. In a text, a random `share` of the words (above
    0, up to 1) is changed, each in one of these ways, and a `Window` comes back as plain text. To an image, a sound or
    a tensor all of them are applied one after another, and `share` has no effect. Raises `LayerscopeError` for an
    unknown kind and for a share outside 0 to 1.

    >>> from layerscope.inputs import augment
    >>> augment("the food was good", "text", share=0.5, seed=0, sample_id=0, view=1)
    'the f ood was gokd'
    """
    chosen = check_views(modality, kinds, share)
    random = np.random.default_rng([seed, sample_id, view])
    if modality == "text":
        return change_words(sample.text if isinstance(sample, Window) else sample, chosen, share, random)
    for kind in chosen:
        sample = _CHANGES[modality][kind](sample, random)
    return sample


def check_views(
    modality: Modality, kinds: Sequence[str] | None = None, share: float = DEFAULT_SHARE
) -> tuple[str, ...]:
    """Return the kinds of augmentation to apply, in their fixed order; all of the modality's where none is named.

    Raises `LayerscopeError` for an unknown kind and for a share outside 0 to 1.

    >>> from layerscope.inputs import check_views
    >>> check_views("image")
    ('crop', 'flip', 'color')
    """
    known = VIEW_KINDS[modality]
    for kind in kinds or ():
        if kind not in known:
            raise LayerscopeError(f"view kind {kind!r} does not exist for {modality}{choices(kind, known)}")
    if not 0 < share <= 1:
        raise LayerscopeError(f"share is {share}: give more than 0 and at most 1")
    return known if not kinds else tuple(kind for kind in known if kind in kinds)


def _crop(image: Any, random: np.random.Generator) -> Any:
    """Return a random part of an image, 0.6 to 1 of its area, at the image's own size."""
    from PIL import Image

    width, height = image.size
    area, ratio = random.uniform(0.6, 1.0), float(np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3))))
    part_width = min(width * (area * ratio) ** 0.5, width)
    part_height = min(height * (area / ratio) ** 0.5, height)
    left, top = random.uniform(0, width - part_width), random.uniform(0, height - part_height)
    box = (left, top, left + part_width, top + part_height)
    return image.resize(image.size, Image.Resampling.BICUBIC, box=box)


def _flip(image: Any, random: np.random.Generator) -> Any:
    from PIL import ImageOps

    return ImageOps.mirror(image) if random.random() < 0.5 else image


def _color(image: Any, random: np.random.Generator) -> Any:
    """Return an image with brightness, contrast and saturation each 0.6 to 1.4 times what they were."""
    from PIL import ImageEnhance

    for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        image = enhance(image).enhance(random.uniform(0.6, 1.4))
    return image


def _hiss(sound: Waveform, random: np.random.Generator) -> Waveform:
    """Return a sound with white noise 15 to 30 dB below it."""
    below = 10 ** (-random.uniform(15, 30) / 20)
    deviation = float(np.sqrt(np.mean(np.square(sound.samples, dtype=np.float64)))) * below
    noise = deviation * random.standard_normal(len(sound.samples))
    return Waveform((sound.samples + noise).astype(np.float32), sound.rate)


def _shift(sound: Waveform, random: np.random.Generator) -> Waveform:
    """Return a sound moved in a circle by up to a tenth of its length, either way."""
    most = len(sound.samples) // 10
    return Waveform(np.roll(sound.samples, int(random.integers(-most, most + 1))), sound.rate)


def _jitter(row: Any, random: np.random.Generator) -> Any:
    """Return an array or tensor with Gaussian noise of a tenth of its own standard deviation.

    Of whole numbers, as token ids, a tenth is replaced by others of the row.
    """
    if row.ndim == 1 and not ("float" in str(row.dtype) or "complex" in str(row.dtype)):
        other, chosen = random.integers(len(row), size=len(row)), random.random(len(row)) < 0.1
        return row[np.where(chosen, other, np.arange(len(row)))]
    if hasattr(row, "detach"):
        import torch

        if not row.is_floating_point():
            raise LayerscopeError(f"a tensor of {row.dtype} takes no noise: give floats, or `views=0`")
        noise = torch.from_numpy(random.standard_normal(tuple(row.shape)))
        return row + (0.1 * row.double().std(correction=0) * noise.to(row.device)).to(row.dtype)
    array = np.asarray(row)
    if not np.issubdtype(array.dtype, np.floating):
        raise LayerscopeError(f"an array of {array.dtype} takes no noise: give floats, or `views=0`")
    noise = 0.1 * array.std(dtype=np.float64) * random.standard_normal(array.shape)
    return (array + noise).astype(array.dtype)


_CHANGES: dict[Modality, dict[str, Callable[[Any, np.random.Generator], Any]]] = {
    "image": {"crop": _crop, "flip": _flip, "color": _color},
    "audio": {"noise": _hiss, "shift": _shift},
    "tensor": {"noise": _jitter},
}
VIEW_KINDS: dict[Modality, tuple[str, ...]] = {
    "text": tuple(TEXT_CHANGES),
    **{modality: tuple(changes) for modality, changes in _CHANGES.items()},
}
