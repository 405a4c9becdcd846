"""A sentence encoder trained at every layer, on pairs of texts, by the Trainer of sentence-transformers.

Their Trainer makes the steps with `AlignedLoss`; what is here is the evaluator that it calls, and the guard.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from warnings import catch_warnings

import numpy as np
import torch
from datasets import Dataset
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformerTrainer
from sentence_transformers.evaluation import SentenceEvaluator
from sentence_transformers.losses import CoSENTLoss, MultipleNegativesRankingLoss
from torch import Tensor
from torch.nn.functional import normalize

from layerscope.metrics import effective_depth
from layerscope.models import evaluating
from layerscope.training.callbacks import Guard, History
from layerscope.training.examples import Examples
from layerscope.training.layer_scores import EPSILON, Row, depth_variant, row_of
from layerscope.training.objectives import Objective
from layerscope.training.options import Settings
from layerscope.training.sentence import AlignedLoss, features_of
from layerscope.training.trainer import generators_kept

SITE = "embedding"
CHUNK = 1024
"""Texts whose similarities to all others are held at once."""


class _Trainer(SentenceTransformerTrainer):  # type: ignore[misc]  # the library is not typed
    """Theirs, whose evaluations draw none of the training's random numbers, and without its model card."""

    def evaluation_loop(self, *args: Any, **options: Any) -> Any:
        """Evaluate without a draw from the training's random numbers."""
        with generators_kept(self.args.device):
            return super().evaluation_loop(*args, **options)

    def add_model_card_callback(self, *_: Any) -> None:
        """Leave the card to the training, which writes its own."""


def pair_trainer(
    model: Any,
    settings: Settings,
    train: Examples,
    held: Examples,
    history: Path,
    args: Any,
) -> Any:
    """Return a Trainer of a SentenceTransformer on pairs, which writes what every layer scores into a history.

    Pairs with scores are learnt by CoSENTLoss, others by MultipleNegativesRankingLoss. `args` are
    those of the Trainer.
    """
    kind = MultipleNegativesRankingLoss if train.labels is None else CoSENTLoss
    every = AlignedLoss(kind(model), dims=settings.dims)
    layers = settings.layers
    weights = settings.weights
    if settings.objective == "standard":
        layers = every.layers[-1:]
        weights = "uniform"
    loss = AlignedLoss(kind(model), layers, weights, settings.dims)
    objective = Objective(settings.objective, weights=settings.weights)
    log = History(history, every.layered, objective, args, SITE)
    scores = PairScores(every, held, log, args.eval_batch_size)
    guard = Guard(
        lambda _, features: zip(every.layers, every.embeddings(features), strict=True)
    )
    loss.register_forward_hook(lambda _, batch, value: guard.see(value, batch[0][0]))
    return _Trainer(
        model,
        args=args,
        loss=loss,
        evaluator=scores,
        train_dataset=_table(train),
        processing_class=model.tokenizer,
        callbacks=[log, guard],
    )


@dataclass(eq=False)
class PairScores(SentenceEvaluator):  # type: ignore[misc]  # the library is not typed
    """Scores every layer, at every prefix of the loss's dimensions, for a Trainer of sentence-transformers.

    Pairs with scores are judged by Spearman's correlation of scores and cosines, others by how
    often the nearest second text is the pair's.
    """

    loss: AlignedLoss
    pairs: Examples
    history: History
    batch_size: int

    def __post_init__(self) -> None:
        super().__init__()

    @torch.no_grad()
    def __call__(
        self, model: Any, output_path: str | None, steps: int, **_: Any
    ) -> dict[str, float]:
        """Return the score of every layer; the process with a path to write to adds them all to the history."""
        with evaluating(model):
            rows = [*self._rows()]
        if output_path is not None:
            self.history.add(steps, rows, self.pairs.name, len(self.pairs))
        metrics = {"effective_depth": rows[-1]["value"]}
        for row in rows[:-1]:
            name = row["metric"].removeprefix("pair_")
            if row["variant"] is None:
                metrics[name] = metrics[f"{name}_layer_{row['layer']}"] = row["value"]
        return metrics

    def _rows(self) -> Iterator[Row]:
        """Yield the score of each layer with its whole embedding, then with each prefix, then the effective depth."""
        firsts, seconds = zip(*self.pairs.samples, strict=True)
        embeddings = self._embedded(firsts), self._embedded(seconds)
        n = len(firsts)
        layers = self.loss.layers
        width = embeddings[0].shape[-1]
        score = self._spearman
        metric = "pair_spearman"
        if self.pairs.labels is None:
            score = self._accuracy
            metric = "pair_accuracy"
        scores: list[float] = []
        for dims in sorted({*self.loss.dims, width}, reverse=True):
            sides = [normalize(side[..., :dims], dim=-1) for side in embeddings]
            variant = None if dims == width else f"dims={dims}"
            for layer, (value, error) in zip(layers, score(*sides), strict=True):
                yield row_of(metric, layer, value, error, n, site=SITE, variant=variant)
                if variant is None:
                    scores.append(value)
        curve = torch.tensor(scores).nan_to_num().clamp(0, 1)
        depth = float(effective_depth(curve, EPSILON, "last"))
        yield row_of(
            "effective_depth",
            layers[-1],
            depth,
            math.nan,
            n,
            site=SITE,
            variant=depth_variant("last"),
        )

    def _embedded(self, texts: Sequence[str]) -> Tensor:
        """Return what every layer makes of texts, `[L, N, D]`, in batches of like lengths."""
        order = np.argsort([-len(text) for text in texts], kind="stable")
        starts = range(self.batch_size, len(order), self.batch_size)
        parts = []
        for rows in np.split(order, starts):
            features = features_of(self.loss.model, [texts[row] for row in rows])
            parts.append(self.loss.embeddings(features).float().cpu())
        return torch.cat(parts, 1)[:, np.argsort(order)]

    def _spearman(self, one: Tensor, two: Tensor) -> Iterator[tuple[float, float]]:
        """Yield the correlation at each layer with its standard error (Bonett and Wright 2000)."""
        n = len(self.pairs)
        for cosines in (one * two).sum(-1).double().numpy():
            with catch_warnings(action="ignore"):  # of embeddings that are all alike
                r = float(spearmanr(cosines, self.pairs.labels).statistic)
            error = math.nan
            if n > 3:
                error = (1 - r**2) * math.sqrt((1 + r**2 / 2) / (n - 3))
            yield r, error

    def _accuracy(self, one: Tensor, two: Tensor) -> Iterator[tuple[float, float]]:
        """Yield how often the nearest second text at each layer is the pair's, or the same text."""
        seconds = np.array([second for _, second in self.pairs.samples])
        for queries, texts in zip(one, two, strict=True):
            parts = [(part @ texts.T).argmax(-1) for part in queries.split(CHUNK)]
            hits = seconds[torch.cat(parts).numpy()] == seconds
            error = math.nan
            if len(hits) > 1:
                error = math.sqrt(hits.var() / (len(hits) - 1))
            yield float(hits.mean()), error


def _table(pairs: Examples) -> Any:
    """Return pairs as the library's Trainer takes them."""
    first, second = zip(*pairs.samples, strict=True)
    table = {"text_a": list(first), "text_b": list(second)}
    if pairs.labels is not None:
        table["score"] = list(pairs.labels)
    return Dataset.from_dict(table)
