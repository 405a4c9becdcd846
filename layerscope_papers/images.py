"""The images that vision transformers are trained and judged on, and ways to change them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from layerscope.core import LayerscopeError
from layerscope.inputs import Corpus, open_corpus

Pixels = npt.NDArray[Any]
TEST = 500
"""Samples of digits that no model is trained on."""
NOISY, NOISE = "noisy digits", 0.4
"""A second data set without a download, and its noise in units of the range of pixels."""
OTHER = {"digits": NOISY, "cifar10": "imagenet"}
"""A second data set beside that of a scale."""
HUB = {
    "cifar10": ("hf:cifar10:train", "hf:cifar10:test"),
    "imagenet": ("hf:imagenet-1k:train", "hf:imagenet-1k:validation"),
}
"""Where training and test images are found without a local folder."""
IMAGES = {"digits": 1297, NOISY: 1297, "cifar10": 50_000, "imagenet": 1_281_167}
"""Training images."""
HELD_OUT = ("test", "val", "validation")
"""What a folder of test images is called."""


def images(name: str, data: Path | None) -> tuple[Corpus, Corpus]:
    """Return the training and test images of a data set, from the folder of data sets where one is given.

    In that folder a data set is a folder or an archive of images in folders `train` and `test`, or
    `val`, each with a folder for every class; or one whose test images have `test` in their names.
    Digits come with scikit-learn. Raises `LayerscopeError` where there are no such images.
    """
    if name in ("digits", NOISY):
        return _digits(name == NOISY)
    if data is None:
        learnt, judged = HUB[name]
        return open_corpus(learnt), open_corpus(judged)
    folder = data / name
    held_out = next(filter(Path.is_dir, map(folder.joinpath, HELD_OUT)), None)
    if held_out and (folder / "train").is_dir():
        return open_corpus(folder / "train"), open_corpus(held_out)
    archive = next(iter(sorted(folder.glob("*"))), None)
    if archive is None:
        raise LayerscopeError(
            f"{str(data)!r} has no folder {name!r} with images: choose another with `data_dir`"
        )
    whole = open_corpus(archive)
    test = np.flatnonzero(["test" in name for name in whole.names]).tolist()
    training = np.setdiff1d(range(len(whole)), test).tolist()
    if not training or not test:
        raise LayerscopeError(
            f"{str(archive)!r} has no training and test images apart: keep them in folders train and test"
        )
    return whole.take(training), whole.take(test)


def _digits(with_noise: bool) -> tuple[Corpus, Corpus]:
    from sklearn.model_selection import train_test_split

    whole = open_corpus("digits")
    if with_noise:
        whole = changed(whole, lambda image, i: noisy(image, i, NOISE))
    train, test = train_test_split(
        np.arange(len(whole)), test_size=TEST, random_state=0, stratify=whole.labels
    )
    held_out = replace(whole.take(sorted(test)), name="digits-test")
    return whole.take(sorted(train)), held_out


def changed(
    corpus: Corpus,
    change: Callable[[Pixels, int], Pixels],
    labels: Sequence[int] | None = None,
) -> Corpus:
    """Return images whose pixels are changed, given each image's number, with the labels given or their own."""
    arrays = [
        change(np.asarray(image, dtype=float), i)
        for i, image in enumerate(corpus.samples)
    ]
    samples = tuple(
        Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8))
        for pixels in arrays
    )
    return replace(
        corpus,
        samples=samples,
        labels=corpus.labels if labels is None else tuple(labels),
    )


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
