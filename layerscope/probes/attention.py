"""Attention probing: one trained query reads the tokens of a frozen layer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from layerscope.core.errors import LayerscopeError
from layerscope.probes.scores import Numbers, ProbeScore, score_of, stratified, usable_classes

RATES = (1e-2, 3e-3, 1e-3)
"""Learning rates that are tried side by side; the best on a held-out fifth of a training fold is taken."""
HELD_OUT = 5
HEADS = 8
BATCH = 64
EPOCHS = 20
LEAST_STEPS = 300
WARM_UP = 0.1
WEIGHT_DECAY = 0.1
SMALL = 2**24
"""Products of a step below which a second thread costs more than it saves."""
BLOCK = 1024
"""Samples whose tokens are looked at together where nothing is trained."""


class Ragged:
    """Tokens of samples that differ in length: `tokens` [M, D], one sample after another, and `lengths` [N]."""

    def __init__(self, tokens: Tensor, lengths: npt.ArrayLike) -> None:
        self.tokens, self.lengths = tokens, torch.as_tensor(np.asarray(lengths, dtype=np.int64))
        total = int(self.lengths.sum())
        if (
            tokens.ndim != 2
            or self.lengths.ndim != 1
            or total != len(tokens)
            or bool((self.lengths < 1).any())
        ):
            raise LayerscopeError(
                f"tokens has shape {tuple(tokens.shape)} and lengths add up to {total}: give tokens [M, D] of all "
                "samples one after another, and the length of each, at least 1"
            )
        self.starts = self.lengths.cumsum(0) - self.lengths

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tokens [B, T, D] of some samples in float32, and which of them are real [B, T]."""
        lengths = self.lengths[rows]
        steps = torch.arange(int(lengths.max()))
        real = steps < lengths[:, None]
        return self.tokens[(self.starts[rows, None] + steps).where(real, 0)].float(), real

    def moments(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation [D] of every token of some samples."""
        total = self.lengths[rows].sum()
        parts = [self._flat(part) for part in torch.split(rows, BLOCK)]
        mean = torch.stack([self.tokens[part].double().sum(0) for part in parts]).sum(0) / total
        square = torch.stack(
            [(self.tokens[part].double() - mean).pow(2).sum(0) for part in parts]
        ).sum(0)
        return mean.float(), (square / total).sqrt().float()

    def _flat(self, rows: Tensor) -> Tensor:
        lengths = self.lengths[rows]
        before = lengths.cumsum(0) - lengths
        return torch.arange(int(lengths.sum())) + (self.starts[rows] - before).repeat_interleave(
            lengths
        )


class Readers(nn.Module):
    """Several attention probes of one shape side by side, each to be trained at a learning rate of its own.

    Tokens [B, T, D] are standardised by the training samples' own mean and deviation. In each of
    `HEADS` heads a trained query weighs the tokens by their keys; the weighted sum of their values
    goes through a linear classifier.
    """

    def __init__(
        self, mean: Tensor, deviation: Tensor, classes: int, copies: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        width = len(mean)
        size = max(1, width // HEADS)
        # a feature that does not move but for rounding is not to be blown up
        self.mean, self.scale = mean, 1 / torch.maximum(deviation, 1e-5 * mean.abs() + 1e-12)

        def drawn(scale: float, *shape: int) -> nn.ParameterList:
            first = torch.randn(shape, generator=generator) * scale
            return nn.ParameterList(nn.Parameter(first.clone()) for _ in range(copies))

        self.query = drawn(0.02, HEADS, size)
        self.key = drawn(width**-0.5, HEADS, width, size)
        self.value = drawn(width**-0.5, HEADS, width, size)
        self.out = drawn((HEADS * size) ** -0.5, HEADS, size, classes)
        self.bias = drawn(0.0, classes)
        self.parts = self.query, self.key, self.value, self.out, self.bias

    def forward(self, tokens: Tensor, real: Tensor) -> Tensor:
        """Return the logits [copies, B, classes]."""
        query, key, value, out, bias = (torch.stack(list(part)) for part in self.parts)
        tokens = (tokens - self.mean) * self.scale
        # one query: its product with the key matrix is one vector a head, and values may be taken
        # of the sum
        reading = torch.einsum("rhs,rhds->rhd", query, key) / math.sqrt(query.shape[-1])
        weights = (
            torch.einsum("btd,rhd->rbht", tokens, reading)
            .masked_fill(~real[:, None], -math.inf)
            .softmax(-1)
        )
        pooled = torch.einsum("rbht,btd->rbhd", weights, tokens)
        read = torch.einsum("rbhd,rhds->rbhs", pooled, value)
        return torch.einsum("rbhs,rhsc->rbc", read, out) + bias[:, None]


def attention_probe(
    tokens: Tensor,
    lengths: npt.ArrayLike,
    labels: npt.ArrayLike,
    folds: int = 3,
    seed: int = 0,
) -> ProbeScore:
    """Return how well labels are read from all tokens of a frozen layer by a trained attention, cross-validated.

    `tokens` is `[M, D]`, those of all samples one after another, `lengths` `[N]` how many each has,
    `labels` `[N]` of any type. Tokens are standardised by the training fold, pooled by multi-head
    attention with one trained query, and classified linearly: AdamW, weight decay 0.1, a cosine
    schedule, at least 300 steps of 64 samples. The learning rate is chosen among 0.01, 0.003 and
    0.001 on a seeded fifth of the training fold, then trained on all of it. Every sample is judged
    once, by the probe of the fold that did not see it. Accuracy in 0 ... 1; same seed, same score.

    Source: El-Nouby et al. 2024, Scalable pre-training of large autoregressive image models,
    section 4.

    >>> labels = np.repeat(["praise", "blame"], 15)
    >>> states = np.random.default_rng(0).normal(size=(30, 4)) + np.where(labels == "praise", 2, -2)[:, None]
    >>> tokens = torch.from_numpy(states.repeat(2, axis=0)).float()  # two tokens a sample
    >>> attention_probe(tokens, [2] * 30, labels).mean
    1.0
    """
    held = Ragged(tokens, lengths)
    if not bool(torch.isfinite(tokens).all()):
        raise LayerscopeError("tokens hold NaN or infinite values: drop the samples they come from")
    kept, classes, skipped = usable_classes(labels, len(held.lengths), folds)
    rows = np.flatnonzero(kept)
    fold = stratified(classes, folds, seed)
    right = np.zeros(len(rows), dtype=bool)
    threads = torch.get_num_threads()
    work = BATCH * len(tokens) / len(held.lengths) * tokens.shape[1] * HEADS
    # several threads of a small probe would spend their time waiting for each other
    torch.set_num_threads(1 if work < SMALL else threads)
    try:
        for number in range(folds):
            test, train = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
            training = _Fold(held, rows, classes, np.random.default_rng([seed, number]))
            right[test] = training.predict(training.fit(train), test)[0] == classes[test]
    finally:
        torch.set_num_threads(threads)
    return score_of(right, fold, skipped)


@dataclass(frozen=True)
class _Fold:
    """One fold's training: `rows` number the samples of `held`, `classes` say what they are, from 0 on."""

    held: Ragged
    rows: Numbers
    classes: Numbers
    rng: np.random.Generator

    def fit(self, train: Numbers) -> Readers:
        """Return the probe trained on all of `train` at the learning rate that a part of it chose."""
        shuffled = self.rng.permutation(train)
        by_class = shuffled[np.argsort(self.classes[shuffled], kind="stable")]
        checked = np.arange(len(train)) % HELD_OUT == HELD_OUT // 2
        readers = self._trained(by_class[~checked], RATES)
        right = self.predict(readers, by_class[checked]) == self.classes[by_class[checked]]
        return self._trained(train, [RATES[int(right.mean(-1).argmax())]])

    @torch.inference_mode()
    def predict(self, readers: Readers, some: Numbers) -> Numbers:
        """Return the classes of samples by each copy, [copies, n]."""
        batches = np.array_split(self.rows[some], max(1, len(some) // BATCH))
        return torch.cat(
            [readers(*self.held.batch(torch.from_numpy(rows))).argmax(-1) for rows in batches], 1
        ).numpy()

    def _trained(self, train: Numbers, rates: Sequence[float]) -> Readers:
        generator = torch.Generator().manual_seed(int(self.rng.integers(2**31)))
        moments = self.held.moments(torch.from_numpy(self.rows[train]))
        readers = Readers(*moments, int(self.classes.max()) + 1, len(rates), generator)
        groups = [
            {"params": [part[i] for part in readers.parts], "lr": rate}
            for i, rate in enumerate(rates)
        ]
        optimizer = torch.optim.AdamW(groups, weight_decay=WEIGHT_DECAY, fused=True)
        batches = -(-len(train) // BATCH)
        epochs = max(EPOCHS, -(-LEAST_STEPS // batches))
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: _share(step / (epochs * batches))
        )
        for _ in range(epochs):
            for part in np.array_split(self.rng.permutation(train), batches):
                logits = readers(*self.held.batch(torch.from_numpy(self.rows[part])))
                wanted = torch.from_numpy(self.classes[part]).repeat(len(rates))
                # a sum over the copies: each has the gradient it would have alone
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), wanted) * len(rates)
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()
                schedule.step()
        return readers


def _share(done: float) -> float:
    """Return the share of the learning rate after a share of the steps: up for a tenth, then down a cosine."""
    if done < WARM_UP:
        return (done + 1e-3) / WARM_UP
    return 0.5 * (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP)))
