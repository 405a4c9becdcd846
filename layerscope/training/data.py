"""What is learnt from: training and evaluation data read, split where need be, their labels numbered, encoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.inputs import Corpus, open_corpus, pack
from layerscope.inputs.corpus import count
from layerscope.inputs.pairs import encoded, paired
from layerscope.inputs.samples import pick
from layerscope.training.examples import Collator, Examples, MaskedTokens, NextToken
from layerscope.training.settings import Settings
from layerscope.training.tagged import TaggedCorpus, is_tagged, open_tagged

HELD_OUT = 0.1
READS = {"image-classification": "image", "audio-classification": "audio"}
"""The modality of a task; the others read text."""
LANGUAGE = ("causal-lm", "masked-lm")
Source = Corpus | TaggedCorpus


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are read; None is guessed."""

    text: str | None = None
    label: str | None = None


@dataclass(frozen=True)
class Data:
    """Training and evaluation data of one task, and the names of its classes, in order; None for language models."""

    train: Source
    eval: Source
    classes: tuple[str, ...] | None
    notes: tuple[str, ...]


def read(data: Any, columns: Columns, task: str) -> Source:
    """Return data as the task reads them; raises `LayerscopeError` for what is not there or of another kind."""
    if isinstance(data, TaggedCorpus):
        return data
    if task == "token-classification" or (task == "auto" and is_tagged(data)):
        return open_tagged(data)
    corpus = open_corpus(data, text_column=columns.text, label_column=columns.label)
    wanted = corpus.modality if task == "auto" else READS.get(task, "text")
    if corpus.modality != wanted:
        raise LayerscopeError(f"{corpus.name} holds {corpus.modality} samples, and --task {task} reads {wanted}")
    return paired(corpus, data, columns.text) if task in ("auto", "classification") else corpus


def prepare(train: Source, held: Source | None, task: str, seed: int) -> Data:
    """Return data ready for a task: a seeded tenth held out where none is given to evaluate on, labels checked."""
    lines = task in LANGUAGE  # how lines were read does not matter to windows of the whole text
    notes = [] if lines else [*train.notes]
    if not lines:
        for corpus in (train, held):
            if corpus is not None and corpus.labels is None:
                raise LayerscopeError(f"{corpus.name} has no labels, which {task} learns from: {_mend(task)}")
    classes = None if lines else classes_of(train)  # before the split, which may hold all of a rare class out
    if held is None and not (isinstance(train, Corpus) and task in LANGUAGE):
        train, held = split(train, seed)
        notes.append(f"no --eval: a tenth of the training data is held out ({count(len(held), 'sample')}, seed {seed})")
    elif held is not None and not lines:
        notes += [f"eval: {note}" for note in held.notes if note not in train.notes]
    if classes is None:
        return Data(train, held if held is not None else train, None, tuple(notes))
    assert held is not None
    _known(held, classes, train.name)
    return Data(train, held, classes, tuple(notes))


def split(corpus: Any, seed: int) -> tuple[Any, Any]:
    """Return a corpus without a seeded tenth of its samples, and that tenth."""
    if len(corpus) < 2:
        raise LayerscopeError(f"{corpus.name} has one sample: nothing can be held out, give --eval")
    order = np.random.default_rng(seed).permutation(len(corpus))
    held = max(1, round(len(corpus) * HELD_OUT))
    return corpus.take(sorted(order[held:])), corpus.take(sorted(order[:held]))


def classes_of(corpus: Source) -> tuple[str, ...]:
    """Return the classes of a corpus in order: by number where all are numbers, else by name."""
    found = set(corpus.every_label() if isinstance(corpus, TaggedCorpus) else corpus.labels or ())
    if len(found) < 2:
        raise LayerscopeError(f"every label of {corpus.name} is {next(iter(found))!r}: give two classes or more")
    return tuple(map(str, sorted(found, key=lambda label: (isinstance(label, str), label))))


def _known(held: Source, classes: Sequence[str], name: str) -> None:
    labels = held.every_label() if isinstance(held, TaggedCorpus) else held.labels or ()
    unknown = sorted({str(label) for label in labels} - set(classes))
    if unknown:
        raise LayerscopeError(
            f"label {unknown[0]!r} of {held.name} is not in the training data {name} ({_few(classes)}): a model cannot "
            "learn it, leave such samples out"
        )


def numbered(labels: Sequence[Any], classes: Sequence[str]) -> list[int]:
    """Return the number of each label among the classes."""
    number = {name: i for i, name in enumerate(classes)}
    return [number[str(label)] for label in labels]


def _few(classes: Sequence[str], limit: int = 8) -> str:
    return ", ".join(classes[:limit]) + (", …" if len(classes) > limit else "")


def _mend(task: str) -> str:
    if task == "classification":
        return "name their column with --label-column, or learn the text itself with --task causal-lm or masked-lm"
    return "give files in a folder for each class"


def describe(corpus: Source) -> dict[str, Any]:
    """Return what a data set is called and held, for comparison."""
    labels = corpus.labels if isinstance(corpus, Corpus) else True
    return {"name": corpus.name, "samples": len(corpus), "labels": labels is not None, "digest": corpus.fingerprint()}


@dataclass(frozen=True)
class Encoded:
    """What a Trainer takes: examples to train and to evaluate on, and what makes batches of them."""

    train: Examples
    eval: Examples
    collator: Collator
    notes: tuple[str, ...]


def encode(data: Data, classes: Sequence[str] | None, encoder: Any, settings: Settings) -> Encoded:
    """Return data as a model takes them: texts tokenised once, images and sounds when a batch is made."""
    if settings.task in LANGUAGE:
        return _windows(data, encoder, settings)
    train, held = (_classified(corpus, classes or (), encoder) for corpus in (data.train, data.eval))
    return Encoded(
        Examples(data.train.name, *train, settings.seed, augment=bool(settings.augment)),
        _drawn(Examples(data.eval.name, *held), settings),
        Collator(encoder),
        (),
    )


def _classified(corpus: Source, classes: Sequence[str], encoder: Any) -> tuple[Sequence[Any], list[Any]]:
    if isinstance(corpus, TaggedCorpus):
        return corpus.encoded(encoder, classes)
    samples: Sequence[Any] = corpus.samples
    if corpus.modality == "text":
        samples = encoded(samples, encoder)
    return samples, numbered(corpus.labels or (), classes)


def _windows(data: Data, encoder: Any, settings: Settings) -> Encoded:
    assert isinstance(data.train, Corpus)
    assert isinstance(data.eval, Corpus)
    train = pack(replace(data.train, notes=()), encoder.tokenizer, encoder.max_length)
    notes = list(train.notes)
    if data.eval is data.train:
        train, held = split(train, settings.seed)
        told = count(len(held), "window")
        notes.append(f"no --eval: a tenth of the training data is held out ({told}, seed {settings.seed})")
    else:
        held = pack(replace(data.eval, notes=()), encoder.tokenizer, encoder.max_length)
        notes += [f"eval: {note}" for note in held.notes]
    kind = NextToken if settings.task == "causal-lm" else MaskedTokens
    return Encoded(
        Examples(train.name, train.samples, None, settings.seed),
        _drawn(Examples(held.name, held.samples, None), settings),
        kind(encoder),
        tuple(notes),
    )


def _drawn(examples: Examples, settings: Settings) -> Examples:
    """Return the evaluation's examples, or so many seeded ones."""
    n = settings.eval_samples
    if n is None or n >= len(examples):
        return examples
    chosen = sorted(np.random.default_rng(settings.seed).choice(len(examples), n, replace=False).tolist())
    labels = None if examples.labels is None else [examples.labels[i] for i in chosen]
    return Examples(examples.name, pick(examples.samples, chosen), labels)
