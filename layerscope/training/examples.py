"""Labelled samples as a Trainer takes them: examples, the order of a pass over them, and batches of each task."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from layerscope.inputs.drawing import drawn_rows
from layerscope.inputs.samples import pick
from layerscope.models.encode import padded
from layerscope.models.forward import Inputs
from layerscope.training.loss import IGNORED

BATCHES = 50
"""Samples are sorted by length within this many batches, drawn at random: few enough that each batch is a mixture."""
PADDING = 1 / 8
"""Largest shift of an augmented image, as a share of each side (4 of 32 pixels)."""
FLIPPED = 0.5
"""Probability that an augmented image is flipped."""
DEGREES = 15.0
"""Largest rotation of an augmented image."""


IN_MEMORY = 2**28
"""Bytes of pixel values, at most, that are kept for a whole training."""
AT_ONCE = 64
"""Images that are read at once where all are."""


Example = tuple[Any, Any]
"""A sample with its label: a class, a row of them, one a token, or None."""
Label = Callable[[dict[str, Tensor], Sequence[Any]], Tensor]


@dataclass(eq=False)
class Examples(Dataset[Example]):
    """Samples as an encoder batches them, and labels; what is random in one follows from seed, epoch and index alone.

    So a training that resumes from a checkpoint meets the very same examples; with `augment` they
    are images.
    """

    name: str
    samples: Sequence[Any]
    labels: Sequence[Any] | None
    seed: int = 0
    augment: bool = False
    epoch: int = 0

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Example:
        sample = self.samples[index]
        if self.augment:
            rng = np.random.default_rng((self.seed, self.epoch, index))
            sample = augmented(sample, rng)
        return sample, self.labels and self.labels[index]

    def drawn(self, n: int | None) -> "Examples":
        """Return `n` of these at most, drawn with their seed and never augmented, to evaluate on."""
        rows, _ = drawn_rows(len(self), None, n or len(self), self.seed)
        labels = self.labels and pick(self.labels, rows)
        return Examples(self.name, pick(self.samples, rows), labels)

    def lengths(self) -> np.ndarray[Any, Any] | None:
        """Return the numbers of tokens, None where they do not differ, or samples are no tokens."""
        if not hasattr(self.samples[0], "ids"):  # images are not opened
            return None
        lengths = np.array([len(sample.ids) for sample in self.samples])
        if lengths.min() < lengths.max():
            return lengths
        return None


def augmented(image: Any, rng: np.random.Generator) -> Any:
    """Return a PIL image shifted by up to an eighth of each side, flipped half of the time, turned by up to ±15°.

    Source: Tracing Representation Progression, appendix C.2 (vision models from scratch).
    """
    from PIL import Image

    width, height = image.size
    across = max(1, round(width * PADDING))
    down = max(1, round(height * PADDING))
    left = rng.integers(-across, across + 1)
    top = rng.integers(-down, down + 1)
    # what lies outside is black
    shifted = image.crop((left, top, left + width, top + height))
    if rng.random() < FLIPPED:
        shifted = shifted.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return shifted.rotate(
        rng.uniform(-DEGREES, DEGREES), resample=Image.Resampling.BILINEAR
    )


@dataclass(eq=False)
class ByLength(Sampler[int]):
    """The order of texts in a training: random by seed and epoch, but those of one batch are about equally long."""

    examples: Examples
    lengths: np.ndarray[Any, Any]
    batch_size: int

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng((self.examples.seed, self.examples.epoch))
        order = rng.permutation(len(self.lengths))
        size = BATCHES * self.batch_size
        parts = np.split(order, range(size, len(order), size))
        alike = np.concatenate(
            [part[np.argsort(self.lengths[part], kind="stable")] for part in parts]
        )
        full = len(alike) // self.batch_size * self.batch_size
        batches = rng.permutation(alike[:full].reshape(-1, self.batch_size))
        yield from batches.reshape(-1).tolist()
        yield from alike[full:].tolist()  # the batch that is not full stays the last


def made_once(
    parts: Sequence[Sequence[Any]], encoder: Any
) -> tuple[Sequence[Sequence[Any]], Any]:
    """Return images as the pixel values that an encoder makes of them, and the function that batches those.

    A processor works longer on a small image than a small model does, and once is enough. Images
    that take more than `IN_MEMORY` are returned as they are.
    """
    (name, pixels), *others = by_name(encoder.batch([parts[0][0]])).items()
    room = IN_MEMORY // max(pixels.nbytes, 1)
    if others or sum(map(len, parts)) > room:
        return parts, encoder.batch

    def made(images: Sequence[Any]) -> list[Tensor]:
        rows = list[Tensor]()
        unread = iter(images)
        while some := [*islice(unread, AT_ONCE)]:
            rows += by_name(encoder.batch(some))[name]
        return rows

    def batch(rows: list[Tensor]) -> Inputs:
        return Inputs({name: torch.stack(rows)})

    return [*map(made, parts)], batch


def by_name(inputs: Any) -> dict[str, Tensor]:
    """Return a batch as keyword arguments; the one tensor of a plain module is called `inputs`."""
    return dict(inputs.named) or {"inputs": inputs.positional}


def batched(examples: Sequence[Example], make: Any, label: Label) -> dict[str, Tensor]:
    """Return a batch as one function makes it of samples, with the `labels` [B] or [B, T] that another gives it."""
    samples, labels = zip(*examples, strict=True)
    batch = by_name(make(list(samples)))
    return batch | {"labels": label(batch, labels)}


def class_labels(batch: dict[str, Tensor], labels: Sequence[Any]) -> Tensor:
    """Return the class of each sample, or of each token, those of padding ignored."""
    if isinstance(labels[0], int):
        return torch.tensor(labels)
    return padded(labels, IGNORED)


def next_tokens(batch: dict[str, Tensor], labels: Sequence[Any]) -> Tensor:
    """Return the tokens themselves, for causal language models; the first, which nothing predicts, is ignored."""
    tokens = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, IGNORED)
    tokens[:, 0] = IGNORED
    return tokens
