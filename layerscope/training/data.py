"""What is learnt from: data read, split where need be, their labels numbered, as examples and batches of a task."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from layerscope.core import LayerscopeError, count, listed
from layerscope.core.labels import is_target
from layerscope.inputs import Corpus, open_corpus, pack
from layerscope.inputs.corpus import Digests, kept_digests, row_numbers
from layerscope.inputs.pair_tables import SCORE, pair_corpus
from layerscope.inputs.pairs import encoded, paired
from layerscope.inputs.tagged import first_tokens, tagged_rows
from layerscope.training.examples import (
    Examples,
    batched,
    class_labels,
    made_once,
    next_tokens,
)
from layerscope.training.loss import IGNORED
from layerscope.training.options import MODALITIES, SENTENCES, TAGGING, Settings

HELD_OUT = 0.1
"""Share of the training data that is held out where no other data are given to evaluate on."""
LANGUAGE = "causal-lm"


def read(
    data: Any, task: str, text_column: str | None, label_column: str | None
) -> Corpus:
    """Return data as the task reads them; raises `LayerscopeError` for what is not there or of another kind."""
    if task == SENTENCES:
        corpus = pair_corpus(data, label_column, SENTENCES)
        note = "no scores: a pair's second text is to be found among those of its batch (in-batch negatives)"
        if corpus.labels is not None:
            note = (
                f"scores: column {label_column or SCORE!r}, learnt as an order (CoSENT)"
            )
        return replace(corpus, notes=(note,))
    if task == TAGGING:
        tagged = tagged_rows(data, TAGGING)
        labels: Any = tagged.labels
        return Corpus(
            tagged.name, "text", tagged.sentences, row_numbers(len(labels)), labels
        )
    corpus = open_corpus(data, text_column=text_column, label_column=label_column)
    modality = MODALITIES.get(task, "text")
    if task != "auto" and corpus.modality not in (modality, "tensor"):
        raise LayerscopeError(
            f"{corpus.name} holds {corpus.modality} samples, and the task {task} reads {modality}"
        )
    if task in ("auto", "classification"):
        return paired(corpus, data, text_column)
    return corpus


def choose_task(data: Corpus) -> str:
    """Return the task that data suggest."""
    if data.running and data.labels is None:
        return LANGUAGE
    by_modality = {modality: task for task, modality in MODALITIES.items()}
    return by_modality.get(data.modality, "classification")


def prepare(
    train: Corpus, held: Corpus | None, task: str, seed: int
) -> tuple[Corpus, Corpus, tuple[str, ...] | None]:
    """Return training and evaluation data with checked labels, and the classes of a task (or None) in order.

    A seeded tenth is held out where none are given to evaluate on, which the training data note.
    The label of a tagged sentence is a row of labels.
    """
    # windows of the whole text are made, and held out, when it is encoded; its lines need no notes
    if task == LANGUAGE:
        train = replace(train, notes=())
        return train, held or train, None
    classes = None
    if task != SENTENCES:
        # before the split, which may hold all of a rare class out
        classes = _classes(train, task)
        if held is not None:
            _refuse_unknown(held, train, classes, task)
    if held is None:
        train, held = _split(train, seed)
    return train, held, classes


def _refuse_unknown(
    held: Corpus, train: Corpus, classes: tuple[str, ...], task: str
) -> None:
    """Raise where a sample to evaluate on has a class that is not learnt."""
    labels = set(map(str, _labels(held, task)))
    unknown = sorted(labels.difference(classes))
    if unknown:
        raise LayerscopeError(
            f"label {unknown[0]!r} of {held.name} is not in the training data {train.name} ({listed(classes, 8)}): a "
            "model cannot learn it, leave such samples out"
        )


def _split(corpus: Corpus, seed: int) -> tuple[Corpus, Corpus]:
    """Return a corpus without a seeded tenth of its samples, which its notes say, and that tenth."""
    if len(corpus) < 2:
        raise LayerscopeError(
            f"{corpus.name} has one sample, and none can be held out: give `eval`"
        )
    order = np.random.default_rng(seed).permutation(len(corpus))
    n = max(1, round(len(corpus) * HELD_OUT))
    held = corpus.take(sorted(order[:n]))
    train = corpus.take(sorted(order[n:]))
    note = f"without `eval`, a tenth of the training data is held out ({count(n, 'sample')}, seed {seed})"
    return replace(train, notes=(*corpus.notes, note)), held


def _labels(corpus: Corpus, task: str) -> set[Any]:
    """Return the labels there are, those of words among them."""
    if corpus.labels is None:
        mend = "name their column with `label_column`, or learn the text itself with `task='causal-lm'`"
        if task in MODALITIES:
            mend = "give files in a folder for each class"
        raise LayerscopeError(
            f"{corpus.name} has no labels, which {task} learns from: {mend}"
        )
    labels: Any = corpus.labels
    if task == TAGGING:
        labels = chain.from_iterable(labels)
    return set(labels)


def _classes(corpus: Corpus, task: str) -> tuple[str, ...]:
    """Return the classes of a corpus in order: by number where all are numbers, else by name."""
    labels = _labels(corpus, task)
    if is_target(labels):
        raise LayerscopeError(
            f"the labels of {corpus.name} are numbers to predict, and {task} learns classes: name another "
            "`label_column`"
        )
    if len(labels) < 2:
        raise LayerscopeError(
            f"every label of {corpus.name} is {next(iter(labels))!r}: give at least two classes"
        )
    ordered = sorted(labels, key=lambda label: (isinstance(label, str), label))
    return tuple(map(str, ordered))


def describe(corpus: Corpus) -> dict[str, Any]:
    """Return the name, size and digest of a data set, for comparison."""
    return {
        "name": corpus.name,
        "samples": len(corpus),
        "labels": corpus.labels is not None,
        "digest": corpus.fingerprint(),
    }


@dataclass(frozen=True)
class Lessons:
    """Examples to train and to evaluate on, what makes batches of them for a transformers Trainer, and notes.

    `digests` are those of the samples that a classifier learns from.
    """

    train: Examples
    eval: Examples
    collate: Callable[..., Any]
    notes: tuple[str, ...]
    digests: Digests | None


def encode(
    train: Corpus,
    held: Corpus,
    classes: Sequence[str] | None,
    encoder: Any,
    settings: Settings,
) -> Lessons:
    """Return data as a Trainer takes them: texts tokenised once, images and sounds read when a batch is made.

    Small or few images that are met in several epochs are read once, too.
    """
    task = settings.task
    seed = settings.seed
    notes = tuple[str, ...]()
    digests = None
    label = class_labels
    if task == LANGUAGE:
        label = next_tokens
        train, held = _windows(train, held, encoder, seed)
        notes = train.notes
    if classes is not None and task != TAGGING:
        digests = kept_digests(train)
    make = encoder.batch
    is_read_again = settings.epochs > 1 and settings.max_steps is None
    is_image = train.modality == held.modality == "image"
    if is_image and is_read_again and not settings.augment:
        pixels, make = made_once((train.samples, held.samples), encoder)
        train = replace(train, samples=pixels[0])
        held = replace(held, samples=pixels[1])
    examples = []
    labels: Sequence[Any] | None
    for corpus in (train, held):
        samples = corpus.samples
        labels = corpus.labels
        if classes is not None:
            samples, labels = _classified(corpus, classes, encoder, task)
        augment = bool(settings.augment)
        examples.append(Examples(corpus.name, samples, labels, seed, augment=augment))
    learnt, judged = examples
    return Lessons(
        learnt,
        judged.drawn(settings.eval_samples),
        partial(batched, make=make, label=label),
        notes,
        digests,
    )


def _windows(
    train: Corpus, held: Corpus, encoder: Any, seed: int
) -> tuple[Corpus, Corpus]:
    """Return windows of running text, of the same length in tokens."""
    reading = encoder.tokenizer, encoder.max_length
    windows = pack(train, *reading)
    if held is train:
        return _split(windows, seed)
    return windows, pack(held, *reading)


def _classified(
    corpus: Corpus, classes: Sequence[str], encoder: Any, task: str
) -> tuple[Sequence[Any], list[Any]]:
    """Return samples as the model reads them, and their classes; of a tagged word its first token has the label."""
    number = {name: i for i, name in enumerate(classes)}
    labels: Any = corpus.labels
    if task != TAGGING:
        samples = corpus.samples
        if corpus.modality == "text":
            samples = encoded(samples, encoder)
        return samples, [number[str(label)] for label in labels]
    windows = []
    rows = []
    tokens = first_tokens(encoder, corpus.samples, corpus.name)
    for (window, starts), words in zip(tokens, labels, strict=True):
        row = [IGNORED] * len(window.ids)
        for start, label in zip(starts, words, strict=True):
            if start >= 0:
                row[start] = number[label]
        if any(label != IGNORED for label in row):
            windows.append(window)
            rows.append(row)
    if not rows:
        raise LayerscopeError(
            f"{corpus.name}: no word keeps a token within `max_length`: give a larger one"
        )
    return windows, rows
