"""Samples that exits are chosen, calibrated and measured on, with class numbers where their labels name classes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from layerscope.core import LayerscopeError, Reading, choices, count
from layerscope.early_exit.cost_model import Rows
from layerscope.early_exit.exit_model import ExitModel
from layerscope.early_exit.predictions import Recorded, sureness
from layerscope.inputs import Corpus, open_corpus
from layerscope.inputs.corpus import seen_of
from layerscope.inputs.drawing import drawn_rows
from layerscope.inputs.pairs import encoded, paired
from layerscope.inputs.samples import pick
from layerscope.models import Inputs, batches_of, encoder_for, setting
from layerscope.models.encode import Encoder
from layerscope.models.layered import class_numbers
from layerscope.models.modality import read_as


@dataclass(frozen=True)
class Validation:
    """N samples as a model's encoder takes them, in the order they came in, and their class numbers if known.

    `lengths` [N] are those of the encoder. `together`: whether they may share batches; where
    padding changes a model's states, only samples of one length may.
    """

    name: str
    encoder: Encoder
    samples: Sequence[Any]
    lengths: Sequence[int]
    labels: Rows | None
    notes: tuple[str, ...]
    together: bool = True

    def __len__(self) -> int:
        return len(self.samples)

    def plan(self, batch_size: int) -> list[Rows]:
        """Return which samples go together, as they came in."""
        rows = np.arange(len(self))
        return np.split(rows, range(batch_size, len(self), batch_size))

    def batch(self, rows: Rows) -> Inputs:
        """Return these samples as one batch."""
        return self.encoder.batch(pick(self.samples, rows.tolist()))


def read_validation(
    model: ExitModel,
    data: Any,
    *,
    samples: int | None = None,
    seed: int = 0,
    **reading: Unpack[Reading],
) -> Validation:
    """Return data as a classifier reads them: `samples` seeded ones at most, none of them empty."""
    column = reading.get("text_column")
    loaded = model.layered.loaded
    corpus = open_corpus(
        data, text_column=column, label_column=reading.get("label_column")
    )
    corpus = paired(corpus, data, column)
    notes = [*corpus.notes]
    encoder = encoder_for(
        read_as(corpus.modality, corpus.samples[0], model.model),
        loaded.processor,
        model.model,
        max_length=reading.get("max_length") or loaded.max_length,
        prompt=loaded.prompt,
        lack=loaded.lack,
    )
    if samples is not None and samples < len(corpus):
        # whatever their labels: the guarantee is for samples drawn at random
        rows, _ = drawn_rows(len(corpus), None, samples, seed)
        corpus = corpus.take(rows)
        notes.append(
            f"{count(samples, 'sample')} of the data are taken, by seed {seed}"
        )
    notes += _seen_in_training(model, corpus)
    inputs = corpus.samples
    if encoder.modality == "text":
        inputs = encoded(inputs, encoder)
    lengths = encoder.lengths(inputs)
    if not all(lengths):
        empty = corpus.names[lengths.index(0)]
        raise LayerscopeError(
            f"{corpus.name}: sample {empty} is empty to this model: leave it out"
        )
    labels, label_notes = _labels(corpus, model)
    notes += label_notes
    longest = max(lengths)
    together = all(model.layered.joins(length, longest) for length in lengths)
    if not together:
        notes.append(
            "padding changes this model's states: samples of different lengths are run one at a time"
        )
    return Validation(
        corpus.name, encoder, inputs, lengths, labels, tuple(notes), together
    )


def record_all(
    model: ExitModel,
    samples: Validation,
    batch_size: int,
    advance: Callable[[int], None] = lambda rows: None,
    share: Callable[..., Iterator[Any]] = map,
) -> Recorded:
    """Return what every layer says of each sample, in the order of the data, from batches of samples of like lengths.

    `advance` counts the rows of each batch; `share` maps as `map` does, in several processes.
    Scores differ by rounding from those of a batch in serving, as two batches in serving do. The
    guarantee survives that: it counts wrong predictions at thresholds fixed before the data, and
    few samples are so close to one.
    """
    batches = batches_of(model.layered, samples.lengths, batch_size)
    plan = [np.asarray(rows) for rows in batches]
    parts = []
    for part in share(lambda rows: read_layers(model, samples.batch(rows)), plan):
        parts.append(part)
        advance(len(part[0]))
    order = np.argsort(np.concatenate(plan))
    columns = zip(*parts, strict=True)
    scores, predictions = (np.concatenate(column)[order] for column in columns)
    return Recorded(model.classes, scores, predictions, samples.labels)


def read_layers(model: ExitModel, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores [B, L] and the predictions [B, L] of a batch."""
    scores: list[Tensor] = []
    predictions: list[Tensor] = []

    def keep(layer: int, logits: Tensor, rows: Tensor) -> Tensor:
        scores.append(sureness(logits, f"layer {layer}"))
        predictions.append(logits.argmax(-1).cpu())
        return torch.zeros(len(rows), dtype=torch.bool)

    before_last = range(1, model.depth)
    outcome = model.run(inputs.to(model.device), before_last, keep)
    keep(model.depth, outcome.logits, outcome.layers)
    by_layer = torch.stack(predictions, 1)
    return torch.stack(scores, 1).numpy(), by_layer.numpy()


def _seen_in_training(model: ExitModel, corpus: Corpus) -> list[str]:
    """Warn where what lies beside a trained checkpoint says that it learnt some of these samples."""
    folder = Path(str(setting(model.model, "_name_or_path", "")))
    seen, comparable = seen_of(corpus, folder)
    if not seen:
        return []
    return [
        f"{seen:,} of {count(comparable, 'sample')} that can be compared are among those that "
        f"{model.layered.name} was trained on: it is surer of these than of new ones, so the guarantee does not "
        "hold; give samples that it has not seen"
    ]


def _labels(corpus: Corpus, model: ExitModel) -> tuple[Rows | None, list[str]]:
    """Return the class number of each sample, None where a label is no class of the model, with the line on that."""
    if corpus.labels is None:
        return None, []
    numbers = class_numbers(corpus.labels, model.layered)
    if None not in numbers:
        return np.asarray(numbers, dtype=np.int64), []
    other = str(corpus.labels[numbers.index(None)])
    names = setting(model.model, "id2label") or {}
    classes = choices(other, [*map(str, names.values())][:12])
    note = f"label {other!r} of {corpus.name} is not a class of the model{classes}; accuracy is not known"
    return None, [note]
