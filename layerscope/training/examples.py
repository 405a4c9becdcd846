"""What a training reads: examples by number, encoded when a batch is made, and the batches of each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import TrainerCallback

from layerscope.models.encode import padded
from layerscope.training.augmentation import augmented
from layerscope.training.loss import IGNORED


@dataclass(frozen=True)
class Example:
    """A sample with its label: a class, a row of them (one a token), or None; and a seed of its own."""

    sample: Any
    label: Any
    seed: tuple[int, int, int]


class Examples(Dataset[Example]):
    """Samples and labels; what is random in an example follows from seed, epoch and number alone.

    So a training that goes on from a checkpoint meets the very same examples.
    """

    def __init__(
        self, name: str, samples: Sequence[Any], labels: Sequence[Any] | None, seed: int = 0, *, augment: bool = False
    ) -> None:
        """Take samples as an encoder batches them, under the name of their data; `augment` those that are images."""
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


class Epochs(TrainerCallback):  # type: ignore[misc]
    """Tells examples which epoch begins; a data loader that skips what a checkpoint has seen would tell another."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count from the state, which a checkpoint brings along."""
        self.examples.epoch = int((state.epoch or 0) + 1e-6)


class Collator:
    """Makes batches of classified samples: the encoder's tensors, and `labels` [B] or [B, T]."""

    def __init__(self, encoder: Any) -> None:
        """Take the encoder of the model."""
        self.encoder = encoder

    def __call__(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """Return one batch."""
        batch = dict(self.encoder.batch([example.sample for example in examples]).named)
        return batch | {"labels": self.labels(batch, examples)}

    def labels(self, batch: dict[str, Tensor], examples: Sequence[Example]) -> Tensor:
        """Return the class of each sample, or of each token, those of padding ignored."""
        found = [example.label for example in examples]
        if isinstance(found[0], int):
            return torch.tensor(found)
        return padded(found, IGNORED)


class NextToken(Collator):
    """Makes batches for causal language models; the first token, which nothing predicts, is ignored."""

    def labels(self, batch: dict[str, Tensor], examples: Sequence[Example]) -> Tensor:
        """Return the tokens themselves."""
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, IGNORED)
        labels[:, 0] = IGNORED
        return labels


class MaskedTokens(Collator):
    """Makes batches for masked language models; which tokens are masked follows from the examples' seeds."""

    def __init__(self, encoder: Any) -> None:
        """Take the encoder of the model, whose tokenizer has a mask token."""
        from transformers import DataCollatorForLanguageModeling

        super().__init__(encoder)
        self.masking = DataCollatorForLanguageModeling(encoder.tokenizer, mlm_probability=0.15)

    def labels(self, batch: dict[str, Tensor], examples: Sequence[Example]) -> Tensor:
        """Mask tokens in place and return what they were."""
        tokenizer, ids = self.encoder.tokenizer, batch["input_ids"]
        special = torch.tensor(
            [tokenizer.get_special_tokens_mask(row, already_has_special_tokens=True) for row in ids.tolist()]
        )
        drawn = np.random.default_rng([number for example in examples for number in example.seed])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(drawn.integers(2**62)))
            labels: Tensor
            batch["input_ids"], labels = self.masking.torch_mask_tokens(ids, special | (batch["attention_mask"] == 0))
        return labels
