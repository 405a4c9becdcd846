"""The images that vision transformers are trained and judged on, and ways to change them."""

import tarfile
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from itertools import product
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from PIL.Image import registered_extensions

from layerscope.core import LayerscopeError
from layerscope.inputs import Corpus, open_corpus

Pixels = npt.NDArray[Any]
TEST = 500
"""Samples of digits that no model is trained on."""
HUB = {
    "cifar10": ("hf:cifar10:train", "hf:cifar10:test"),
    "imagenet": ("hf:imagenet-1k:train", "hf:imagenet-1k:validation"),
}
"""Where training and test images are found without a local folder."""
IMAGES = {"digits": 1297, "cifar10": 50_000, "imagenet": 1_281_167}
"""Training images."""
HELD_OUT = ("test", "val", "validation")
"""What a folder of test images is called."""


def images(name: str, data: Path | None) -> tuple[Corpus, Corpus]:
    """Return the training and test images of a data set, from the folder of data sets where one is given.

    In that folder a data set is a folder, with folders `train` and `test` (or `val`), each with a
    folder of images for every class; or these two in a tar archive. Digits come with scikit-learn.
    Raises `LayerscopeError` where there are no such images.
    """
    if name == "digits":
        return _digits()
    if data is None:
        learnt, judged = HUB[name]
        return open_corpus(learnt), open_corpus(judged)
    folder = data / name
    archive = next(iter(sorted(folder.glob("*.tar*"))), None)
    parts = _of_archive(archive) if archive else _of_folders(folder)
    held_out = next(filter(parts.__contains__, HELD_OUT), None)
    if held_out is None or "train" not in parts:
        raise LayerscopeError(
            f"{str(folder)!r} has no images in folders train and test: choose other data sets with `data_dir`"
        )
    return parts["train"], parts[held_out]


def _of_folders(folder: Path) -> dict[str, Corpus]:
    parts = [folder / part for part in ("train", *HELD_OUT)]
    return {part.name: open_corpus(part) for part in parts if part.is_dir()}


def _of_archive(archive: Path) -> dict[str, Corpus]:
    """Return the images of a tar archive by part; each lies in the folder of its class."""
    parts: dict[str, list[tuple[Any, str, str]]] = defaultdict(list)
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                file = tar.extractfile(member)
                if file is not None and path.suffix.lower() in registered_extensions():
                    image = Image.open(BytesIO(file.read())).convert("RGB")
                    part = parts[path.parent.parent.name]
                    part.append((image, str(path), path.parent.name))
    except (tarfile.TarError, LZMAError, zlib.error, EOFError, OSError) as error:
        raise LayerscopeError(f"{str(archive)!r} cannot be read: {error}") from error
    packed = {}
    for name, part in parts.items():
        samples, names, labels = zip(*part, strict=True)
        packed[name] = Corpus(name, "image", samples, names, labels)
    return packed


def _digits() -> tuple[Corpus, Corpus]:
    from sklearn.model_selection import train_test_split

    whole = open_corpus("digits")
    train, test = train_test_split(
        np.arange(len(whole)), test_size=TEST, random_state=0, stratify=whole.labels
    )
    held_out = replace(whole.take(sorted(test)), name="digits-test")
    return whole.take(sorted(train)), held_out


def changed(corpus: Corpus, change: Callable[[Pixels, int], Pixels]) -> Corpus:
    """Return images whose pixels are changed, given each image's number."""
    arrays = [
        change(np.asarray(image, dtype=float), i)
        for i, image in enumerate(corpus.samples)
    ]
    samples = tuple(
        Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8))
        for pixels in arrays
    )
    return replace(corpus, samples=samples)


def noisy(image: Pixels, number: int, share: float) -> Pixels:
    """Return an image with normal noise, the same in all colours, whose deviation is a share of the range.

    Pixels are 0 … 255 `[height, width, 3]`, and with the noise may lie outside; the noise is that of
    the image's `number`.
    """
    noise: Pixels = np.random.default_rng(number).normal(
        0, 255 * share, (*image.shape[:2], 1)
    )
    return image + noise


def shifted(corpus: Corpus) -> Corpus:
    """Return images at their place and moved by a pixel in eight directions; what enters is black."""
    samples = []
    labels = []
    names = []
    for image, label, name in zip(
        corpus.samples, corpus.labels or (), corpus.names, strict=True
    ):
        for right, down in product((-1, 0, 1), repeat=2):
            moved = image.transform(
                image.size, Image.Transform.AFFINE, (1, 0, -right, 0, 1, -down)
            )
            samples.append(moved)
            labels.append(label)
            names.append(f"{name} {right:+} {down:+}")
    return replace(
        corpus, samples=tuple(samples), labels=tuple(labels), names=tuple(names)
    )
