"""Training of a sentence encoder at every layer, on pairs of texts, by the Trainer of sentence-transformers."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.losses import CoSENTLoss, MultipleNegativesRankingLoss
from torch import Tensor
from transformers.trainer_utils import EvalLoopOutput

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import existing
from layerscope.evaluation.kinds.sts import similarity_scores
from layerscope.inputs import Corpus
from layerscope.inputs.columns import missing
from layerscope.inputs.pairs import SECOND, Pair
from layerscope.inputs.tables import table_of
from layerscope.metrics import effective_depth
from layerscope.models import LoadOptions
from layerscope.models.capture import evaluating
from layerscope.models.checks import embedded
from layerscope.models.loading import sentence_transformer, without_bars
from layerscope.scores.files import refuse_columns, refuse_rows
from layerscope.scores.statistics import spearman
from layerscope.training.callbacks import Watched
from layerscope.training.data import Examples
from layerscope.training.layer_scores import EPSILON, Row, depth_variant
from layerscope.training.objectives import Objective
from layerscope.training.sentence import AlignedLoss, features_of, prefixes
from layerscope.training.trainer import generators_kept
from layerscope.training.verb import SENTENCES, Settings

PAIRS = (*SECOND.items(), ("anchor", "positive"))
SCORE = "score"
CHUNK = 1024
"""Texts whose similarities to all others are held at once."""


def read_pairs(data: Any, score_column: str | None) -> Corpus:
    """Return the pairs of texts of a table; their labels are scores, None where it has no such column.

    Raises `LayerscopeError` for data that are no table, without columns of pairs, and with empty or
    odd cells.
    """
    path = existing(data, "data") if isinstance(data, (str, Path)) else None
    frame = table_of(data)
    if frame is None:
        raise LayerscopeError(
            f"{data} is no table: {SENTENCES} reads pairs of texts from CSV, TSV, JSONL or Parquet"
        )
    source, name = (
        ("the data frame", "frame") if path is None else (str(path), path.name.partition(".")[0])
    )
    frame = frame.rename(columns=str.strip)
    pair = next((pair for pair in PAIRS if {*pair} <= {*frame}), None)
    if pair is None:
        raise LayerscopeError(
            f"{source} has no pairs of texts: it needs text_a and text_b, or anchor and positive, and has "
            f"{', '.join(frame)}"
        )
    column = score_column or (SCORE if SCORE in frame else None)
    refuse_columns(frame, [*pair, *([column] if column else [])], source)
    for side in pair:
        refuse_rows(
            pd.Series(missing(frame[side].tolist())),
            frame[side],
            source,
            "fill it in, or leave the row out",
        )
    rows = frame[[*pair]].astype(str).itertuples(index=False)
    scores, note = (
        None,
        "no scores: a pair's second text is to be found among those of its batch (in-batch negatives)",
    )
    if column:
        scores = tuple(
            similarity_scores(frame.rename(columns={column: SCORE}), source)[SCORE].tolist()
        )
        note = f"scores: column {column!r}, learnt as an order (CoSENT)"
    return Corpus(
        name,
        "text",
        tuple(Pair(*row) for row in rows),
        tuple(map(str, range(len(frame)))),
        scores,
        (note,),
    )


def open_encoder(model: Any, name: str, chosen: Settings) -> Any:
    """Return a SentenceTransformer, made with mean pooling where a model is none."""
    if isinstance(model, (str, Path)):
        source = str(Path(embedded(str(model))).expanduser())
        try:
            with without_bars():
                model = sentence_transformer(
                    source, LoadOptions(dtype="float32", device=chosen.device)
                )
        except LayerscopeError as error:
            raise LayerscopeError(f"{name} is not a sentence encoder: {error}") from error
    elif not isinstance(model, SentenceTransformer):
        raise LayerscopeError(
            f"a {type(model).__name__} is not a sentence encoder: give a SentenceTransformer, or a name"
        )
    if chosen.max_length is not None:
        model.max_seq_length = chosen.max_length
    if chosen.dims is not None:
        prefixes(model, chosen.dims)
    model[0].auto_model.config._name_or_path = name  # the name in the history
    return model


class SentenceTrainer(Watched, SentenceTransformerTrainer):  # type: ignore[misc]  # the library is not typed
    """`SentenceTransformerTrainer` with `AlignedLoss`; its evaluations score every layer, at every prefix of `dims`.

    Pairs with scores are learnt by CoSENTLoss and judged by Spearman's correlation of scores and
    cosines; others by MultipleNegativesRankingLoss, judged by how often the own second text is the
    nearest.
    """

    site, scoring, left_out = "embedding", {"language_model": False}, None

    def __init__(
        self,
        model: Any,
        objective: Objective,
        layers: Sequence[int] | None,
        dims: Sequence[int] | None,
        history: Path,
        train_dataset: Examples,
        eval_dataset: Examples,
        **options: Any,
    ) -> None:
        self.judged = eval_dataset
        kind = MultipleNegativesRankingLoss if train_dataset.labels is None else CoSENTLoss
        self.objective, self.every = objective, AlignedLoss(kind(model), dims=dims)
        self.layered = self.every.layered
        exits = (
            (layers, objective.weights)
            if objective.name == "aligned"
            else ([self.every.layers[-1]], "uniform")
        )
        loss = AlignedLoss(kind(model), *exits, dims=dims)
        data = {"train_dataset": _dataset(train_dataset), "eval_dataset": _dataset(eval_dataset)}
        super().__init__(model=model, loss=loss, **data, **options)
        self.watch(loss.layers, history)

    def add_model_card_callback(self, *_: Any) -> None:
        """Leave the library's card out, which the training's own replaces."""

    def readings(self, model: Any, inputs: Any) -> Iterator[tuple[int, Tensor]]:
        """Yield every layer with its embeddings of the first texts of a batch."""
        return zip(
            self.every.layers,
            self.every.embeddings(self.collect_features(inputs)[0][0]),
            strict=True,
        )

    @torch.no_grad()
    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        *args: Any,
        metric_key_prefix: str = "eval",
        **options: Any,
    ) -> Any:
        """Return the score of every layer, which the history keeps."""
        with generators_kept(self.args.device), evaluating(self.model):
            rows = [*self._rows()]
        name = rows[0]["metric"].removeprefix("pair_")
        found = {
            f"{name}_layer_{row['layer']}": row["value"] for row in rows if row["variant"] is None
        }
        found |= {
            name: found[f"{name}_layer_{self.every.layers[-1]}"],
            "effective_depth": rows[-1]["value"],
        }
        self.keep("", self.judged.name, len(self.judged), rows)
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in found.items()}
        return EvalLoopOutput(
            predictions=None, label_ids=None, metrics=metrics, num_samples=len(self.judged)
        )

    def _rows(self) -> Iterator[Row]:
        """Yield the score of each layer with its whole embedding, then with each prefix, then the effective depth."""
        one, two = (self._embedded([pair[side] for pair in self.judged.samples]) for side in (0, 1))
        n, layers, width = len(self.judged), self.every.layers, one.shape[-1]

        def row(
            metric: str, layer: int, variant: str | None, value: float, stderr: float = math.nan
        ) -> Row:
            known = {
                "layer": layer,
                "site": self.site,
                "value": value,
                "stderr": stderr,
                "n": n,
                "n_skipped": 0,
            }
            return {"metric": metric, "variant": variant, "pooling": None, **known}

        whole: list[float] = []
        for d in sorted({*self.every.dims, width}, reverse=True):
            cut = [torch.nn.functional.normalize(side[..., :d], dim=-1) for side in (one, two)]
            metric, scores = (
                self._accuracy(*cut) if self.judged.labels is None else self._spearman(*cut)
            )
            whole = whole or [value for value, _ in scores]
            yield from (
                row(metric, layer, None if d == width else f"dims={d}", *score)
                for layer, score in zip(layers, scores, strict=True)
            )
        reached = effective_depth(torch.tensor(whole).nan_to_num().clamp(0, 1), EPSILON, "last")
        yield row("effective_depth", layers[-1], depth_variant("last"), float(reached))

    def _embedded(self, texts: Sequence[str]) -> Tensor:
        """Return what every layer makes of texts, `[L, N, D]`, in batches of like lengths."""
        order, size = (
            np.argsort([-len(text) for text in texts], kind="stable"),
            self.args.eval_batch_size,
        )
        parts = [
            [texts[i] for i in order[start : start + size]] for start in range(0, len(order), size)
        ]
        found = [
            self.every.embeddings(features_of(self.model, part)).float().cpu() for part in parts
        ]
        return torch.cat(found, 1)[:, np.argsort(order)]

    def _spearman(self, one: Tensor, two: Tensor) -> tuple[str, list[tuple[float, float]]]:
        """Return the correlation at each layer with its standard error (Bonett and Wright 2000)."""
        n = len(self.judged)
        found = spearman(
            (one * two).sum(-1).double().numpy(), np.asarray(self.judged.labels, dtype=float)
        )
        errors = [
            (1 - r**2) * math.sqrt((1 + r**2 / 2) / (n - 3)) if n > 3 else math.nan for r in found
        ]
        return "pair_spearman", [*zip(map(float, found), errors, strict=True)]

    def _accuracy(self, one: Tensor, two: Tensor) -> tuple[str, list[tuple[float, float]]]:
        """Return how often the nearest second text is the own one, or as right: of an equal first or second text."""
        firsts, seconds = (
            np.unique(side, return_inverse=True)[1]
            for side in zip(*self.judged.samples, strict=True)
        )
        found = []
        for layer in range(len(one)):
            starts = range(0, one.shape[1], CHUNK)
            nearest = torch.cat(
                [(one[layer, i : i + CHUNK] @ two[layer].T).argmax(-1) for i in starts]
            ).numpy()
            right = (firsts[nearest] == firsts) | (seconds[nearest] == seconds)
            error = float(right.std(ddof=1)) / len(right) ** 0.5 if len(right) > 1 else math.nan
            found.append((float(right.mean()), error))
        return "pair_accuracy", found


def _dataset(pairs: Examples) -> Any:
    """Return pairs as the library's Trainer takes them."""
    first, second = zip(*pairs.samples, strict=True)
    scores = {} if pairs.labels is None else {"score": list(pairs.labels)}
    return Dataset.from_dict({"text_a": list(first), "text_b": list(second), **scores})
