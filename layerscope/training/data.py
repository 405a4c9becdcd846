"""What is learnt from: training and evaluation data read, split where need be, their labels numbered, encoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.core.words import count, listed
from layerscope.inputs import Corpus, open_corpus, pack
from layerscope.inputs.pairs import encoded, paired
from layerscope.inputs.samples import pick
from layerscope.inputs.tables import JSON_LINES, PARQUET, is_frame, table_of, table_suffix
from layerscope.inputs.tagged import LABELS, WORDS, first_tokens, tagged_rows
from layerscope.training.examples import Examples, batched, class_labels, masked_tokens, next_tokens
from layerscope.training.loss import IGNORED
from layerscope.training.settings import Settings

HELD_OUT = 0.1
READS = {"image-classification": "image", "audio-classification": "audio"}
"""The modality of a task; the others read text."""
TAGGING = "token-classification"
LANGUAGE = ("causal-lm", "masked-lm")


@dataclass(frozen=True)
class Data:
    """Training and evaluation data of one task, and the names of its classes, in order; None for language models.

    The samples of token classification are sentences as words, and the label of a sentence is a row of labels.
    """

    train: Corpus
    eval: Corpus
    classes: tuple[str, ...] | None
    notes: tuple[str, ...]


def read(data: Any, task: str, text_column: str | None = None, label_column: str | None = None) -> Corpus:
    """Return data as the task reads them; raises `LayerscopeError` for what is not there or of another kind."""
    if task == TAGGING or (task == "auto" and _is_table_of_lists(data)):
        found = tagged_rows(data, TAGGING)
        labels: Any = found.labels
        return Corpus(found.name, "text", found.sentences, tuple(map(str, range(len(labels)))), labels)
    corpus = open_corpus(data, text_column=text_column, label_column=label_column)
    wanted = corpus.modality if task == "auto" else READS.get(task, "text")
    if corpus.modality != wanted:
        raise LayerscopeError(f"{corpus.name} holds {corpus.modality} samples, and the task {task} reads {wanted}")
    return paired(corpus, data, text_column) if task in ("auto", "classification") else corpus


def choose_task(data: Corpus, both_sides: bool) -> str:
    """Return the task that data suggest to a model, which may see both sides of a token."""
    if data.labels is not None and isinstance(data.labels[0], tuple):
        return TAGGING
    if data.modality != "text" or data.labels is not None or not data.running:
        return next((task for task, modality in READS.items() if modality == data.modality), "classification")
    return "masked-lm" if both_sides else "causal-lm"


def prepare(train: Corpus, held: Corpus | None, task: str, seed: int) -> Data:
    """Return data ready for a task: a seeded tenth held out where none is given to evaluate on, labels checked."""
    if task in LANGUAGE:  # which read windows of the whole text: they are made, and held out, when it is encoded
        return Data(train, held or train, None, ())
    for corpus in filter(None, (train, held)):
        if corpus.labels is None:
            column = "name their column with `label_column`, or learn the text itself with `task='causal-lm'` or "
            mend = "give files in a folder for each class" if task in READS else column + "`task='masked-lm'`"
            raise LayerscopeError(f"{corpus.name} has no labels, which {task} learns from: {mend}")
    classes = _classes(train)  # before the split, which may hold all of a rare class out
    if held is None:
        train, held, note = _split(train, seed, "sample")
        return Data(train, held, classes, (*train.notes, note))
    unknown = sorted(set(map(str, _labels(held))) - set(classes))
    if unknown:
        raise LayerscopeError(
            f"label {unknown[0]!r} of {held.name} is not in the training data {train.name} ({listed(classes, 8)}): a "
            "model cannot learn it, leave such samples out"
        )
    return Data(train, held, classes, (*train.notes, *[f"eval: {n}" for n in held.notes if n not in train.notes]))


def _split(corpus: Corpus, seed: int, unit: str) -> tuple[Corpus, Corpus, str]:
    """Return a corpus without a seeded tenth of its samples, that tenth, and a note."""
    if len(corpus) < 2:
        raise LayerscopeError(f"{corpus.name} has one sample, and none can be held out: give `eval`")
    order = np.random.default_rng(seed).permutation(len(corpus))
    held = max(1, round(len(corpus) * HELD_OUT))
    note = f"without `eval`, a tenth of the training data is held out ({count(held, unit)}, seed {seed})"
    return corpus.take(sorted(order[held:])), corpus.take(sorted(order[:held])), note


def _labels(corpus: Corpus) -> set[Any]:
    """Return the labels there are, those of words among them."""
    rows = (label if isinstance(label, tuple) else (label,) for label in corpus.labels or ())
    return {label for row in rows for label in row}


def _classes(corpus: Corpus) -> tuple[str, ...]:
    """Return the classes of a corpus in order: by number where all are numbers, else by name."""
    found = _labels(corpus)
    if len(found) < 2:
        raise LayerscopeError(f"every label of {corpus.name} is {next(iter(found))!r}: give at least two classes")
    return tuple(map(str, sorted(found, key=lambda label: (isinstance(label, str), label))))


def describe(corpus: Corpus) -> dict[str, Any]:
    """Return the name, size and digest of a data set, for comparison."""
    labelled = corpus.labels is not None
    return {"name": corpus.name, "samples": len(corpus), "labels": labelled, "digest": corpus.fingerprint()}


@dataclass(frozen=True)
class Encoded:
    """What a Trainer takes: examples to train and to evaluate on, and what makes batches of them."""

    train: Examples
    eval: Examples
    collator: Any
    notes: tuple[str, ...] = ()


def encode(data: Data, classes: Sequence[str] | None, encoder: Any, settings: Settings) -> Encoded:
    """Return data as a model takes them: texts tokenised once, images and sounds when a batch is made."""
    train, held, seed = data.train, data.eval, settings.seed
    notes: tuple[str, ...] = ()
    learnt: Any
    judged: Any
    if classes is None:
        train = pack(replace(train, notes=()), encoder.tokenizer, encoder.max_length)
        if held is data.train:
            train, held, note = _split(train, seed, "window")
            notes = (*train.notes, note)
        else:
            held = pack(replace(held, notes=()), encoder.tokenizer, encoder.max_length)
            notes = (*train.notes, *[f"eval: {note}" for note in held.notes])
        learnt, judged = (train.samples, None), (held.samples, None)
        label = next_tokens if settings.task == "causal-lm" else masked_tokens
    else:
        label, number = class_labels, {name: i for i, name in enumerate(classes)}
        learnt, judged = (_classified(corpus, number, encoder, settings.task) for corpus in (train, held))
    samples, labels = judged
    n = settings.eval_samples
    if n is not None and n < len(samples):
        chosen = sorted(np.random.default_rng(seed).choice(len(samples), n, replace=False).tolist())
        samples, labels = pick(samples, chosen), None if labels is None else [labels[i] for i in chosen]
    collator = partial(batched, encoder=encoder, label=label)
    examples = Examples(train.name, learnt[0], learnt[1], seed, augment=bool(settings.augment))
    return Encoded(examples, Examples(held.name, samples, labels), collator, notes)


def _classified(corpus: Corpus, number: dict[str, int], encoder: Any, task: str) -> tuple[Sequence[Any], list[Any]]:
    if task == TAGGING:
        return _tagged(corpus, number, encoder)
    samples = encoded(corpus.samples, encoder) if corpus.modality == "text" else corpus.samples
    return samples, [number[str(label)] for label in corpus.labels or ()]


def _tagged(corpus: Corpus, number: dict[str, int], encoder: Any) -> tuple[list[Any], list[list[int]]]:
    """Return sentences as the model reads them, and the classes of their tokens: a word's label is at its first one."""
    windows, rows = [], []
    labels: Any = corpus.labels
    for (window, starts), own in zip(first_tokens(encoder, corpus.samples, corpus.name), labels, strict=True):
        at = {start: number[label] for start, label in zip(starts, own, strict=True) if start >= 0}
        if at:
            windows.append(window)
            rows.append([at.get(i, IGNORED) for i in range(len(window.ids))])
    if not rows:
        raise LayerscopeError(f"{corpus.name}: no word keeps a token within `max_length`: give a larger one")
    return windows, rows


def _is_table_of_lists(data: Any) -> bool:
    """Return whether data are a table with lists of words and of labels."""
    if not is_frame(data) and table_suffix(data) not in (*JSON_LINES, *PARQUET):
        return False
    if (frame := table_of(data)) is None:
        return False
    found = [next((frame[name] for name in names if name in frame), None) for names in (WORDS, LABELS)]
    return all(column is not None and len(column) and not isinstance(column.iloc[0], str) for column in found)
