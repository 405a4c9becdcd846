import re
import unicodedata
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from layerscope.core.errors import LayerscopeError
from layerscope.inputs.pairs import Pair
from layerscope.inputs.samples import Conversation, Modality, Waveform, Window

SHARE = 0.1
"""Share of a text's words that change."""
_NEIGHBOURS = (
    "wa qeas wrsd etdf ryfg tugh yihj uojk ipkl ol sqwz adwezx sferxc dgrtcv fhtyvb gjyubn hkuinm jliom kop xas zcsd "
    "xvdf cbfg vngh bmhj njk"
)
QWERTY = dict(zip("qwertyuiopasdfghjklzxcvbnm", _NEIGHBOURS.split(), strict=True))
"""Each letter's neighbours on a keyboard whose rows lie half a key apart."""


def augment(
    sample: Any, modality: Modality, *, seed: int, sample_id: int, view: int
) -> Any:
    """Return an augmented view of a sample, which depends only on the seed, the sample number and the view number.

    In a text a tenth of the words, at least one, have two letters swapped, a typo, or a space within
    them, and a `Window` comes back as plain text. An image is cropped, flipped and coloured, a
    sound gets noise and is shifted, a tensor gets noise.

    >>> from layerscope.inputs import augment
    >>> augment("the food was good", "text", seed=0, sample_id=0, view=1)
    'the food was gokd'
    """
    view_of_text = partial(
        augment, modality=modality, seed=seed, sample_id=sample_id, view=view
    )
    if isinstance(sample, Pair):
        return Pair(*map(view_of_text, sample))
    if isinstance(sample, Conversation):
        return Conversation(
            {**each, "content": view_of_text(each["content"])}
            for each in sample.messages
        )
    random = np.random.default_rng([seed, sample_id, view])
    if modality == "text":
        if isinstance(sample, Window):
            sample = sample.text
        return _change_words(sample, random)
    for change in CHANGES[modality]:
        sample = change(sample, random)
    return sample


def _change_words(text: str, random: Generator) -> str:
    """Return a text with a share of its words changed, in one way each; what lies between words stays.

    Words that cannot be changed are passed over.
    """
    pieces = re.split(r"(\S+)", text)  # the words have odd indices
    words = range(1, len(pieces), 2)
    left = max(1, round(SHARE * len(words)))
    for index in random.permutation(words):
        if left == 0:
            break
        for kind in random.permutation(len(TEXT_CHANGES)):
            changed = TEXT_CHANGES[kind](pieces[index], random)
            if changed is not None:
                pieces[index] = changed
                left -= 1
                break
    return "".join(pieces)


def _swap(word: str, random: Generator) -> str | None:
    """Return a word with two neighbouring, different letters swapped; None where it has none."""
    two = [
        i
        for i in range(len(word) - 1)
        if word[i] != word[i + 1] and _letters(word, i) and _free(word, i + 2)
    ]
    if not two:
        return None
    i = int(random.choice(two))
    return word[:i] + word[i + 1] + word[i] + word[i + 2 :]


def _typo(word: str, random: Generator) -> str | None:
    """Return a word with a letter replaced by its neighbour on a QWERTY keyboard, in the same case."""
    keys = [
        i
        for i, letter in enumerate(word)
        if letter.lower() in QWERTY and _free(word, i + 1)
    ]
    if not keys:
        return None
    i = int(random.choice(keys))
    other = str(random.choice(list(QWERTY[word[i].lower()])))
    if word[i].isupper():
        other = other.upper()
    return word[:i] + other + word[i + 1 :]


def _split(word: str, random: Generator) -> str | None:
    """Return a word with a space between two of its letters; None where it has no two."""
    inside = [i for i in range(1, len(word)) if _letters(word, i - 1)]
    if not inside:
        return None
    i = int(random.choice(inside))
    return f"{word[:i]} {word[i:]}"


def _letters(word: str, i: int) -> bool:
    return word[i].isalnum() and word[i + 1].isalnum()


def _free(word: str, i: int) -> bool:
    """Return whether no accent at `i` belongs to the letter before it, which must not lose it."""
    return i >= len(word) or unicodedata.category(word[i])[0] != "M"


TEXT_CHANGES = (_swap, _typo, _split)


def _crop(image: Any, random: Generator) -> Any:
    """Return a random part of an image, 0.6 to 1 of its area, at the image's own size."""
    from PIL import Image

    width, height = image.size
    area = random.uniform(0.6, 1.0)
    exponent = random.uniform(np.log(3 / 4), np.log(4 / 3))
    ratio = float(np.exp(exponent))
    part_width = min(width * (area * ratio) ** 0.5, width)
    part_height = min(height * (area / ratio) ** 0.5, height)
    left = random.uniform(0, width - part_width)
    top = random.uniform(0, height - part_height)
    box = (left, top, left + part_width, top + part_height)
    return image.resize(image.size, Image.Resampling.BICUBIC, box=box)


def _flip(image: Any, random: Generator) -> Any:
    from PIL import ImageOps

    if random.random() < 0.5:
        return ImageOps.mirror(image)
    return image


def _color(image: Any, random: Generator) -> Any:
    """Return an image with brightness, contrast and saturation each 0.6 to 1.4 times what they were."""
    from PIL import ImageEnhance

    for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        image = enhance(image).enhance(random.uniform(0.6, 1.4))
    return image


def _hiss(sound: Waveform, random: Generator) -> Waveform:
    """Return a sound with white noise 15 to 30 dB below it."""
    below = 10 ** (-random.uniform(15, 30) / 20)
    deviation = (
        float(np.sqrt(np.mean(np.square(sound.samples, dtype=np.float64)))) * below
    )
    noise = deviation * random.standard_normal(len(sound.samples))
    return Waveform((sound.samples + noise).astype(np.float32), sound.rate)


def _shift(sound: Waveform, random: Generator) -> Waveform:
    """Return a sound moved in a circle by up to a tenth of its length, either way."""
    most = len(sound.samples) // 10
    return Waveform(
        np.roll(sound.samples, int(random.integers(-most, most + 1))), sound.rate
    )


def _jitter(row: Any, random: Generator) -> Any:
    """Return an array or tensor with Gaussian noise of a tenth of its own standard deviation.

    Of whole numbers, as token ids, a tenth is replaced by others of the row.
    """
    if "float" not in str(row.dtype):
        if row.ndim != 1:
            raise LayerscopeError(
                f"an array of {row.dtype} cannot take noise: give floats, or `views=0`"
            )
        other = random.integers(len(row), size=len(row))
        chosen = random.random(len(row)) < 0.1
        return row[np.where(chosen, other, np.arange(len(row)))]
    noise = 0.1 * random.standard_normal(tuple(row.shape))
    if isinstance(row, np.ndarray):
        scaled = row.std(dtype=np.float64) * noise
        return (row + scaled).astype(row.dtype)
    import torch

    drawn = torch.from_numpy(noise).to(row.device)
    scaled = row.double().std(correction=0) * drawn
    return row + scaled.to(row.dtype)


CHANGES: dict[Modality, tuple[Callable[[Any, Generator], Any], ...]] = {
    "image": (_crop, _flip, _color),
    "audio": (_hiss, _shift),
    "tensor": (_jitter,),
}
