"""The order in which a training takes texts: at random, but texts of one batch about as long as each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch.utils.data import Sampler

from layerscope.training.examples import Examples

BATCHES = 50
"""Within so many batches, drawn at random, samples are sorted; few enough that a batch is a mixture all the same."""


class ByLength(Sampler[int]):
    """Numbers of the examples, all once, in an order that follows from seed and epoch alone."""

    def __init__(self, examples: Examples, batch_size: int) -> None:
        """Take examples of token ids, and how many of them a batch holds."""
        self.examples, self.batch_size = examples, batch_size
        self.lengths = np.array([len(sample.ids) for sample in examples.samples])

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


class LongestFirst(Sampler[int]):
    """Numbers of the examples by their length, so that the batches of an evaluation hold little padding."""

    def __init__(self, examples: Examples) -> None:
        """Take examples of token ids."""
        self.order = np.argsort([-len(sample.ids) for sample in examples.samples], kind="stable").tolist()

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[int]:
        return iter(self.order)


def of_lengths(examples: Examples) -> bool:
    """Return whether examples are token ids that differ in length."""
    samples = examples.samples
    return hasattr(samples[0], "ids") and len({len(sample.ids) for sample in samples}) > 1  # images are not opened
