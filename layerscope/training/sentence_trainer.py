"""A sentence encoder trained at every layer, on pairs of texts, by the Trainer of sentence-transformers.

Their Trainer makes the steps with `AlignedLoss`; what is here is the evaluator that it calls, and the guard.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer
from sentence_transformers.evaluation import SentenceEvaluator
from sentence_transformers.losses import CoSENTLoss, MultipleNegativesRankingLoss
from torch import Tensor

from layerscope.metrics import effective_depth
from layerscope.models.capture import evaluating
from layerscope.scores.statistics import spearman
from layerscope.training.callbacks import Guard, History
from layerscope.training.examples import Examples
from layerscope.training.layer_scores import EPSILON, Row, depth_variant
from layerscope.training.objectives import Objective
from layerscope.training.sentence import AlignedLoss, features_of
from layerscope.training.trainer import generators_kept

SITE = "embedding"
CHUNK = 1024
"""Texts whose similarities to all others are held at once."""


class _Trainer(SentenceTransformerTrainer):  # type: ignore[misc]  # the library is not typed
    """Theirs, whose evaluations draw none of the training's random numbers, and without its model card."""

    def evaluation_loop(self, *args: Any, **options: Any) -> Any:
        with generators_kept(self.args.device):
            return super().evaluation_loop(*args, **options)

    def add_model_card_callback(self, *_: Any) -> None:
        """Leave the card to the training, which writes its own."""


def pair_trainer(
    model: Any,
    objective: Objective,
    layers: Sequence[int] | None,
    dims: Sequence[int] | None,
    data: tuple[Examples, Examples],
    history: Path,
    options: dict[str, Any],
) -> Any:
    """Return a Trainer of a SentenceTransformer on pairs, which writes what every layer scores into a history.

    Pairs with scores are learnt by CoSENTLoss, others by MultipleNegativesRankingLoss. `data` are
    to train and to evaluate on, `options` those of the Trainer.
    """
    train, held = data
    kind = MultipleNegativesRankingLoss if train.labels is None else CoSENTLoss
    every = AlignedLoss(kind(model), dims=dims)
    exits, weights = layers, objective.weights
    if objective.name != "aligned":
        exits, weights = every.layers[-1:], "uniform"
    loss = AlignedLoss(kind(model), exits, weights, dims)
    scores = PairScores(every, held, options["args"].eval_batch_size)
    trainer = _Trainer(model, loss=loss, evaluator=scores, train_dataset=_table(train), **options)
    scores.history = History(history, every.layered, objective, trainer.args, SITE)
    guard = Guard(lambda _, features: zip(every.layers, every.embeddings(features), strict=True))
    loss.register_forward_hook(lambda _, args, value: guard.see(value, args[0][0]))
    trainer.add_callback(scores.history)
    trainer.add_callback(guard)
    return trainer


class PairScores(SentenceEvaluator):  # type: ignore[misc]  # the library is not typed
    """Scores every layer, at every prefix of the loss's dimensions, for a Trainer of sentence-transformers.

    Pairs with scores are judged by Spearman's correlation of scores and cosines, others by how
    often the nearest second text is the pair's.
    """

    def __init__(self, loss: AlignedLoss, pairs: Examples, batch_size: int) -> None:
        super().__init__()
        self.loss, self.pairs, self.batch_size = loss, pairs, batch_size
        self.history: History | None = None

    @torch.no_grad()
    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        """Return the score of every layer; the process with a path to write to adds them all to the history."""
        with evaluating(model):
            rows = [*self._rows()]
        if self.history is not None and output_path is not None:
            self.history.add(steps, rows, self.pairs.name, len(self.pairs))
        name = rows[0]["metric"].removeprefix("pair_")
        whole = [row for row in rows[:-1] if row["variant"] is None]
        metrics = {f"{name}_layer_{row['layer']}": row["value"] for row in whole}
        return metrics | {name: whole[-1]["value"], "effective_depth": rows[-1]["value"]}

    def _rows(self) -> Iterator[Row]:
        """Yield the score of each layer with its whole embedding, then with each prefix, then the effective depth."""
        firsts, seconds = zip(*self.pairs.samples, strict=True)
        sides = self._embedded(firsts), self._embedded(seconds)
        layers, width = self.loss.layers, sides[0].shape[-1]
        score, metric = self._spearman, "pair_spearman"
        if self.pairs.labels is None:
            score, metric = self._accuracy, "pair_accuracy"
        whole: list[float] = []
        for d in sorted({*self.loss.dims, width}, reverse=True):
            one, two = (torch.nn.functional.normalize(side[..., :d], dim=-1) for side in sides)
            scores = score(one, two)
            whole = whole or [value for value, _ in scores]
            variant = None if d == width else f"dims={d}"
            for layer, (value, stderr) in zip(layers, scores, strict=True):
                yield self._row(metric, variant, layer, value, stderr)
        reached = effective_depth(torch.tensor(whole).nan_to_num().clamp(0, 1), EPSILON, "last")
        yield self._row("effective_depth", depth_variant("last"), layers[-1], float(reached))

    def _row(
        self, metric: str, variant: str | None, layer: int, value: float, stderr: float = math.nan
    ) -> Row:
        where = {"metric": metric, "variant": variant, "pooling": None, "layer": layer}
        score = {"value": value, "stderr": stderr, "n": len(self.pairs), "n_skipped": 0}
        return {**where, "site": SITE, **score}

    def _embedded(self, texts: Sequence[str]) -> Tensor:
        """Return what every layer makes of texts, `[L, N, D]`, in batches of like lengths."""
        order = np.argsort([-len(text) for text in texts], kind="stable")
        parts = []
        for rows in np.split(order, range(self.batch_size, len(order), self.batch_size)):
            features = features_of(self.loss.model, [texts[row] for row in rows])
            parts.append(self.loss.embeddings(features).float().cpu())
        return torch.cat(parts, 1)[:, np.argsort(order)]

    def _spearman(self, one: Tensor, two: Tensor) -> list[tuple[float, float]]:
        """Return the correlation at each layer with its standard error (Bonett and Wright 2000)."""
        n, cosines = len(self.pairs), (one * two).sum(-1).double().numpy()
        scores = []
        for r in map(float, spearman(cosines, np.asarray(self.pairs.labels, dtype=float))):
            error = (1 - r**2) * math.sqrt((1 + r**2 / 2) / (n - 3)) if n > 3 else math.nan
            scores.append((r, error))
        return scores

    def _accuracy(self, one: Tensor, two: Tensor) -> list[tuple[float, float]]:
        """Return how often the nearest second text is the pair's, or as right: of an equal first or second text."""
        firsts, seconds = (
            np.unique(side, return_inverse=True)[1]
            for side in zip(*self.pairs.samples, strict=True)
        )
        scores = []
        for queries, texts in zip(one, two, strict=True):
            parts = [(part @ texts.T).argmax(-1) for part in queries.split(CHUNK)]
            nearest = torch.cat(parts).numpy()
            right = (firsts[nearest] == firsts) | (seconds[nearest] == seconds)
            error = float(right.std(ddof=1)) / len(right) ** 0.5 if len(right) > 1 else math.nan
            scores.append((float(right.mean()), error))
        return scores


def _table(pairs: Examples) -> Any:
    """Return pairs as the library's Trainer takes them."""
    first, second = zip(*pairs.samples, strict=True)
    scores = {} if pairs.labels is None else {"score": list(pairs.labels)}
    return Dataset.from_dict({"text_a": list(first), "text_b": list(second), **scores})
