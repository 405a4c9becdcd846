"""What a training reads: examples by index, encoded when a batch is made, their order, and the batches of each task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from layerscope.models.encode import padded
from layerscope.training.loss import IGNORED

BATCHES = 50
"""Samples are sorted by length within this many batches, drawn at random: few enough that each batch is a mixture."""
PADDING, FLIPPED, DEGREES = 1 / 8, 0.5, 15.0
"""Augmented images: shift as a share of each side (4 of 32 pixels), probability of a flip, largest rotation."""


@dataclass(frozen=True)
class Example:
    """A sample with its label: a class, a row of them (one a token), or None; and a seed of its own."""

    sample: Any
    label: Any
    seed: tuple[int, int, int]


Label = Callable[[dict[str, Tensor], Sequence[Example], Any], Tensor]


class Examples(Dataset[Example]):
    """Samples and labels; what is random in an example follows from seed, epoch and index alone.

    So a training that resumes from a checkpoint meets the very same examples. Samples are as an encoder batches them,
    `name` is that of their data; with `augment` they are images, and augmented.
    """

    def __init__(
        self, name: str, samples: Sequence[Any], labels: Sequence[Any] | None, seed: int = 0, *, augment: bool = False
    ) -> None:
        self.name = name
        self.samples, self.labels, self.seed, self.augment, self.epoch = samples, labels, seed, augment, 0

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Example:
        seed = (self.seed, self.epoch, index)
        sample = self.samples[index]
        if self.augment:
            sample = augmented(sample, np.random.default_rng(seed))
        return Example(sample, None if self.labels is None else self.labels[index], seed)


def augmented(image: Any, rng: np.random.Generator) -> Any:
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


def lengths_of(examples: Examples) -> np.ndarray[Any, Any] | None:
    """Return the lengths of examples that are token ids, None where they do not differ."""
    if not hasattr(examples.samples[0], "ids"):  # images are not opened
        return None
    found = np.array([len(sample.ids) for sample in examples.samples])
    return found if found.min() < found.max() else None


class ByLength(Sampler[int]):
    """The order of texts in a training: random, but those of one batch are about equally long.

    It has every index once, and follows from seed and epoch alone.
    """

    def __init__(self, examples: Examples, lengths: np.ndarray[Any, Any], batch_size: int) -> None:
        self.examples, self.lengths, self.batch_size = examples, lengths, batch_size

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng((self.examples.seed, self.examples.epoch))
        order, size = rng.permutation(len(self.lengths)), BATCHES * self.batch_size
        parts = [order[start : start + size] for start in range(0, len(order), size)]
        alike = np.concatenate([part[np.argsort(self.lengths[part], kind="stable")] for part in parts])
        whole = len(alike) // self.batch_size * self.batch_size  # the batch that is not full stays the last
        batches = rng.permutation(alike[:whole].reshape(-1, self.batch_size))
        yield from np.concatenate([batches.reshape(-1), alike[whole:]]).tolist()


def batched(examples: Sequence[Example], encoder: Any, label: Label) -> dict[str, Tensor]:
    """Return a batch as a model's encoder makes it, with the `labels` [B] or [B, T] that a function gives it."""
    batch = dict(encoder.batch([example.sample for example in examples]).named)
    return batch | {"labels": label(batch, examples, encoder)}


def class_labels(batch: dict[str, Tensor], examples: Sequence[Example], encoder: Any) -> Tensor:
    """Return the class of each sample, or of each token, those of padding ignored."""
    found = [example.label for example in examples]
    return torch.tensor(found) if isinstance(found[0], int) else padded(found, IGNORED)


def next_tokens(batch: dict[str, Tensor], examples: Sequence[Example], encoder: Any) -> Tensor:
    """Return the tokens themselves, for causal language models; the first, which nothing predicts, is ignored."""
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, IGNORED)
    labels[:, 0] = IGNORED
    return labels


def masked_tokens(batch: dict[str, Tensor], examples: Sequence[Example], encoder: Any) -> Tensor:
    """Mask tokens in the batch and return what they were; which ones follows from the examples' seeds."""
    from transformers import DataCollatorForLanguageModeling

    tokenizer, ids = encoder.tokenizer, batch["input_ids"]
    masking = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    special = [tokenizer.get_special_tokens_mask(row, already_has_special_tokens=True) for row in ids.tolist()]
    fixed = torch.tensor(special) | (batch["attention_mask"] == 0)
    drawn = np.random.default_rng([number for example in examples for number in example.seed])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(drawn.integers(2**62)))
        labels: Tensor
        batch["input_ids"], labels = masking.torch_mask_tokens(ids, fixed)
    return labels
