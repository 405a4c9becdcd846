"""What a model is judged by: a value of each sample, in points, whose mean is the score.

Differences of these values are paired: each sample is its own control.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from layerscope.core.rank_correlation import spearman_by_sample
from layerscope.healing.outputs import (
    Outputs,
    outputs_by_layer,
    outputs_of,
    reads_logits,
)
from layerscope.models import LayeredModel
from layerscope.models.batching import batches_of
from layerscope.models.capture import evaluating
from layerscope.models.forward import Inputs
from layerscope.models.lens import skipping
from layerscope.probes.linear import APART, linearly_judged
from layerscope.probes.ridge import explained, ridge_predictions
from layerscope.probes.scores import stratified

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
FOLDS = 5
LEARN, VALIDATION, HELD = 0, 1, 2
"""The parts of the data: what is learned from, what choices are made by, and what judges the result."""
NEIGHBOURS, INDEXED = 10, 5000
"""Neighbours that are looked for in an index of the full model's vectors, and the most samples of a part in it."""
PARTS = {VALIDATION: (0.2, 500), HELD: (0.25, 1000)}
"""The share of the samples in a part, and the most of them."""


def split(n: int, seed: int) -> Rows:
    """Return the part of each of n samples `[n]`."""
    part = np.full(n, LEARN)
    order = np.random.default_rng(seed).permutation(n)
    start = 0
    for number, (share, most) in PARTS.items():
        end = start + min(most, int(share * n))
        part[order[start:end]] = number
        start = end
    return part


Reader = Callable[[int], Floats]
"""Returns what a model gives on the samples of a part of the data."""


@torch.no_grad()
def _gathered(
    model: LayeredModel, samples: Sequence[Any], give: Callable[[Inputs], Tensor]
) -> list[Floats]:
    """Return what a function gives of batches, [K, B, …], for all samples in order, K of `[n, …]`."""
    values: list[Any] = [None] * len(samples)
    with evaluating(model.module):
        for rows in batches_of(model, model.encoder.lengths(samples)):
            batch = model.encoder.batch([samples[row] for row in rows])
            values_of_batch = give(batch.to(model.device)).double().cpu().numpy()
            for number, row in enumerate(rows):
                values[row] = values_of_batch[:, number]
    return [*np.stack(values, axis=1)]


@dataclass(frozen=True)
class Task(ABC):
    """Samples in three parts, and how a model is judged on them; `full` is the model that is to be smaller.

    `truth` has the class, number or score of each sample, and is empty where there are samples alone.
    """

    full: LayeredModel
    pooling: str
    samples: Sequence[Any]
    part: Rows
    truth: NDArray[Any] = field(default_factory=lambda: np.empty(0), kw_only=True)
    of_full: dict[int, Floats] = field(default_factory=dict, init=False)
    measure: ClassVar[str]
    max_loss: ClassVar[float] = 1.0

    @abstractmethod
    def judged(self, reader: Reader, part: int) -> Floats:
        """Return the value of each sample of a part, in points, of what is read of a model."""

    def of(self, outputs: Outputs, inputs: Inputs) -> Tensor:
        """Return what is read of a model: its vectors or logits."""
        return outputs.given

    def values(self, model: LayeredModel, part: int) -> Floats:
        """Return the value of each sample of a part, in points, of a model."""
        return self.judged(partial(self.read, model), part)

    def with_only(self, blocks: Collection[int], part: int) -> Floats:
        """Return the values of the full model with these blocks alone, counted from 1."""
        every = range(1, self.full.depth + 1)
        others = {*every}.difference(blocks)

        def reader(each: int) -> Floats:
            with skipping(self.full.module, self.full.stack, others):
                return self.read(self.full, each)

        return self.judged(reader, part)

    def by_layer(self) -> list[Reader]:
        """Return what reads the full model's first 1, 2, … L blocks; a part is embedded once for all of them."""
        give = partial(outputs_by_layer, self.full, pooling=self.pooling, read=self.of)

        @cache
        def embedded(part: int) -> list[Floats]:
            return _gathered(self.full, self.texts(part), give)

        def layer_of(layer: int, part: int) -> Floats:
            return embedded(part)[layer]

        return [partial(layer_of, layer) for layer in range(self.full.depth)]

    def rows(self, part: int) -> Rows:
        """Return the rows of a part."""
        return np.flatnonzero(self.part == part)

    def truths(self, part: int) -> NDArray[Any]:
        """Return the classes, numbers or scores of the samples of a part."""
        return self.truth[self.rows(part)]

    def texts(self, part: int) -> list[Any]:
        """Return the samples of a part that a model can learn from, without labels."""
        return [self.samples[row] for row in self.rows(part)]

    def read(self, model: LayeredModel, part: int, most: int | None = None) -> Floats:
        """Return what is read of a model on the samples of a part, the first `most` of them, `[n, …]`."""

        def give(inputs: Inputs) -> Tensor:
            return self.of(outputs_of(model, inputs, self.pooling), inputs)[None]

        return _gathered(model, self.texts(part)[:most], give)[0]

    def by_full(self, part: int) -> Floats:
        """Return what an index of the full model has of a part; the first call is made while that model is whole."""
        if part not in self.of_full:
            self.of_full[part] = self.read(self.full, part, INDEXED)
        return self.of_full[part]

    def recall(self, vectors: Floats, part: int) -> float:
        """Return how many of the ten nearest neighbours a part's new vectors find in an index of the full model's.

        The index has the samples of the parts before it.
        """
        index = np.concatenate([self.by_full(before) for before in range(part)])
        old, new = (
            np.argsort(-(_unit(rows) @ _unit(index).T), axis=1)[:, :NEIGHBOURS]
            for rows in (self.by_full(part), vectors)
        )
        hits = (old[:, :, None] == new[:, None, :]).any(axis=2)
        return float(hits.mean())


def _unit(vectors: Floats) -> Floats:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def _learned_and_judged(
    task: Task, reader: Reader, part: int
) -> tuple[Floats, NDArray[Any], int]:
    """Return vectors and truths of what a probe learns from, then of a part, and how many of them are learned from."""
    vectors = [reader(each) for each in (LEARN, part)]
    truths = [task.truths(each) for each in (LEARN, part)]
    return _unit(np.concatenate(vectors)), np.concatenate(truths), len(truths[0])


class NextToken(Task):
    """The loss of the next token."""

    measure = "loss of the next token, in hundredths of a nat"

    def of(self, outputs: Outputs, inputs: Inputs) -> Tensor:
        """Return minus the mean loss of the next token of each sample [B]."""
        ids = inputs.named["input_ids"][:, 1:]
        mask = outputs.mask
        assert mask is not None
        logits = outputs.given[:, :-1].transpose(1, 2)
        real = mask[:, 1:].float()
        losses = cross_entropy(logits, ids, reduction="none")
        return -(losses * real).sum(1) / real.sum(1)

    def judged(self, reader: Reader, part: int) -> Floats:
        """Return the values: minus the loss."""
        return 100 * reader(part)


class Agreement(Task):
    """Agreement with the full model: equal predictions, the rank correlation of scores, or the cosine of vectors."""

    measure = "agreement with the full model"
    max_loss = 5.0

    def judged(self, reader: Reader, part: int) -> Floats:
        """Return the values."""
        ours = reader(part)
        theirs = self.by_full(part)
        if self.full.scorer is not None:
            return 100 * spearman_by_sample(theirs[:, 0], ours[:, 0])
        if reads_logits(self.full):
            return np.asarray(100.0 * (ours.argmax(-1) == theirs.argmax(-1)))
        vectors = torch.from_numpy(ours), torch.from_numpy(theirs)
        return np.asarray(100 * cosine_similarity(*vectors).numpy())


class Reranked(Task):
    """Spearman's correlation of a model's score of two texts, which it reads together, with theirs."""

    measure = "Spearman's correlation of its scores"

    def judged(self, reader: Reader, part: int) -> Floats:
        """Return the values, by the influence of each pair."""
        scores = reader(part)[:, 0]
        return 100 * spearman_by_sample(self.truths(part), scores)


class Accuracy(Task):
    """The accuracy of a classifier's predictions."""

    measure = "accuracy"

    def judged(self, reader: Reader, part: int) -> Floats:
        """Return the values: which predictions are right."""
        right = reader(part).argmax(-1) == self.truths(part)
        return np.asarray(100.0 * right)


class Probe(Task):
    """The accuracy of a linear probe of the vectors, fitted on the part that is learned from."""

    measure = "accuracy of a linear probe"

    def judged(self, reader: Reader, part: int) -> Floats:
        """Return the values: which predictions of the probe are right."""
        rows, classes, learned = _learned_and_judged(self, reader, part)
        fold = np.full(len(rows), APART)
        fold[:learned] = stratified(classes[:learned], FOLDS, 0)
        right, _, _ = linearly_judged(rows, classes, fold, 0)
        return np.asarray(100.0 * right[learned:])


class Regression(Task):
    """The share of the variance of numbers that a ridge probe of the vectors explains."""

    measure = "variance explained by a ridge probe, R²"

    def judged(self, reader: Reader, part: int) -> Floats:
        """Return the values: what each sample contributes to R²."""
        rows, targets, learned = _learned_and_judged(self, reader, part)
        fold = np.full(len(rows), APART)
        fold[:learned] = np.arange(learned) % FOLDS
        predictions, _ = ridge_predictions(rows, targets, fold, 0)
        return 100 * explained(targets[learned:], predictions[learned:])


class Pairs(Task):
    """Spearman's correlation of the similarity of two texts with their score; the samples are pairs.

    It is the cosine, of sparse vectors their product.
    """

    measure = "Spearman's correlation"

    def texts(self, part: int) -> list[Any]:
        """Return both texts of every pair, each text once."""
        pairs = super().texts(part)
        return [*dict.fromkeys(text for pair in pairs for text in pair)]

    def judged(self, reader: Reader, part: int) -> Floats:
        """Return the values, by the influence of each pair."""
        texts = self.texts(part)
        vectors = reader(part)
        if not self.full.is_sparse:
            vectors = _unit(vectors)
        number = {text: i for i, text in enumerate(texts)}
        pairs = np.array(
            [[number[text] for text in self.samples[row]] for row in self.rows(part)]
        )
        cosines = (vectors[pairs[:, 0]] * vectors[pairs[:, 1]]).sum(1)
        return 100 * spearman_by_sample(self.truths(part), cosines)
