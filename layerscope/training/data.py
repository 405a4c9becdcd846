"""What is learnt from: data read, split where need be, their labels numbered, as examples and batches of each task."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from layerscope.core.errors import LayerscopeError, count, listed, needs
from layerscope.inputs import Corpus, open_corpus, pack
from layerscope.inputs.pairs import encoded, paired
from layerscope.inputs.rows import JSON_LINES, PARQUET
from layerscope.inputs.samples import pick
from layerscope.inputs.tables import is_frame, table_of, table_suffix
from layerscope.inputs.tagged import LABELS, WORDS, first_tokens, tagged_rows
from layerscope.models.encode import padded
from layerscope.training.loss import IGNORED
from layerscope.training.verb import SENTENCES, Settings

BATCHES = 50
"""Samples are sorted by length within this many batches, drawn at random: few enough that each batch is a mixture."""
PADDING, FLIPPED, DEGREES = 1 / 8, 0.5, 15.0
"""Augmented images: shift as a share of each side (4 of 32 pixels), probability of a flip, largest rotation."""
HELD_OUT = 0.1
READS = {"image-classification": "image", "audio-classification": "audio"}
"""The modality of a task; the others read text."""
TAGGING = "token-classification"
LANGUAGE = ("causal-lm", "masked-lm")


def read(
    data: Any, task: str, text_column: str | None = None, label_column: str | None = None
) -> Corpus:
    """Return data as the task reads them; raises `LayerscopeError` for what is not there or of another kind."""
    if task == SENTENCES:
        with needs("sentence-transformers", f"the task {task} trains a SentenceTransformer"):
            from layerscope.training.sentence_trainer import read_pairs
        return read_pairs(data, label_column)
    if task == TAGGING or (task == "auto" and _is_table_of_lists(data)):
        found = tagged_rows(data, TAGGING)
        labels: Any = found.labels
        return Corpus(
            found.name, "text", found.sentences, tuple(map(str, range(len(labels)))), labels
        )
    corpus = open_corpus(data, text_column=text_column, label_column=label_column)
    wanted = (
        corpus.modality
        if task == "auto" or corpus.modality == "tensor"
        else READS.get(task, "text")
    )
    if corpus.modality != wanted:
        raise LayerscopeError(
            f"{corpus.name} holds {corpus.modality} samples, and the task {task} reads {wanted}"
        )
    return paired(corpus, data, text_column) if task in ("auto", "classification") else corpus


def choose_task(data: Corpus, both_sides: bool) -> str:
    """Return the task that data suggest to a model, which may see both sides of a token."""
    if data.labels is not None and isinstance(data.labels[0], tuple):
        return TAGGING
    if data.modality != "text" or data.labels is not None or not data.running:
        return next(
            (task for task, modality in READS.items() if modality == data.modality),
            "classification",
        )
    return "masked-lm" if both_sides else "causal-lm"


def prepare(
    train: Corpus, held: Corpus | None, task: str, seed: int
) -> tuple[Corpus, Corpus, tuple[str, ...] | None, tuple[str, ...]]:
    """Return training and evaluation data with checked labels, the classes of a task (or None) in order, and notes.

    A seeded tenth is held out where none are given to evaluate on. The label of a tagged sentence
    is a row of labels.
    """
    if (
        task in LANGUAGE
    ):  # which read windows of the whole text: they are made, and held out, when it is encoded
        return train, held or train, None, ()
    if task == SENTENCES:
        train, held, note = _split(train, seed, "pair") if held is None else (train, held, "")
        return train, held, None, (*train.notes, *([note] if note else []))
    for corpus in filter(None, (train, held)):
        if corpus.labels is None:
            column = "name their column with `label_column`, or learn the text itself with `task='causal-lm'` or "
            mend = (
                "give files in a folder for each class"
                if task in READS
                else column + "`task='masked-lm'`"
            )
            raise LayerscopeError(f"{corpus.name} has no labels, which {task} learns from: {mend}")
    classes = _classes(train)  # before the split, which may hold all of a rare class out
    if held is None:
        train, held, note = _split(train, seed, "sample")
        return train, held, classes, (*train.notes, note)
    unknown = sorted(set(map(str, _labels(held))) - set(classes))
    if unknown:
        raise LayerscopeError(
            f"label {unknown[0]!r} of {held.name} is not in the training data {train.name} ({listed(classes, 8)}): a "
            "model cannot learn it, leave such samples out"
        )
    return (
        train,
        held,
        classes,
        (*train.notes, *[f"eval: {n}" for n in held.notes if n not in train.notes]),
    )


def _split(corpus: Corpus, seed: int, unit: str) -> tuple[Corpus, Corpus, str]:
    """Return a corpus without a seeded tenth of its samples, that tenth, and a note."""
    if len(corpus) < 2:
        raise LayerscopeError(
            f"{corpus.name} has one sample, and none can be held out: give `eval`"
        )
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
        raise LayerscopeError(
            f"every label of {corpus.name} is {next(iter(found))!r}: give at least two classes"
        )
    return tuple(map(str, sorted(found, key=lambda label: (isinstance(label, str), label))))


def describe(corpus: Corpus) -> dict[str, Any]:
    """Return the name, size and digest of a data set, for comparison."""
    labelled = corpus.labels is not None
    return {
        "name": corpus.name,
        "samples": len(corpus),
        "labels": labelled,
        "digest": corpus.fingerprint(),
    }


def encode(
    train: Corpus, held: Corpus, classes: Sequence[str] | None, encoder: Any, settings: Settings
) -> "tuple[Examples, Examples, Any, tuple[str, ...]]":
    """Return examples to train and to evaluate on, what makes batches of them, and notes.

    Texts are tokenised once, images and sounds are read when a batch is made.
    """
    same, seed, augment = held is train, settings.seed, bool(settings.augment)
    notes: tuple[str, ...] = ()
    if settings.task == SENTENCES:  # whose Trainer makes batches itself
        learnt, judged = (
            Examples(corpus.name, corpus.samples, corpus.labels, seed) for corpus in (train, held)
        )
        return learnt, judged.drawn(settings.eval_samples, seed), None, ()
    if classes is None:
        train = pack(replace(train, notes=()), encoder.tokenizer, encoder.max_length)
        if same:
            train, held, note = _split(train, seed, "window")
            notes = (*train.notes, note)
        else:
            held = pack(replace(held, notes=()), encoder.tokenizer, encoder.max_length)
            notes = (*train.notes, *[f"eval: {note}" for note in held.notes])
        learnt, judged = (
            Examples(corpus.name, corpus.samples, None, seed) for corpus in (train, held)
        )
        label = next_tokens if settings.task == "causal-lm" else masked_tokens
    else:
        label, number = class_labels, {name: i for i, name in enumerate(classes)}
        learnt, judged = (
            Examples(
                corpus.name,
                *_classified(corpus, number, encoder, settings.task),
                seed,
                augment=augment,
            )
            for corpus in (train, held)
        )
    return (
        learnt,
        judged.drawn(settings.eval_samples, seed),
        partial(batched, encoder=encoder, label=label),
        notes,
    )


def _classified(
    corpus: Corpus, number: dict[str, int], encoder: Any, task: str
) -> tuple[Sequence[Any], list[Any]]:
    """Return samples as the model reads them, and their classes; of a tagged word its first token has the label."""
    labels: Any = corpus.labels
    if task != TAGGING:
        samples = encoded(corpus.samples, encoder) if corpus.modality == "text" else corpus.samples
        return samples, [number[str(label)] for label in labels]
    windows, rows = [], []
    for (window, starts), own in zip(
        first_tokens(encoder, corpus.samples, corpus.name), labels, strict=True
    ):
        at = {start: number[label] for start, label in zip(starts, own, strict=True) if start >= 0}
        if at:
            windows.append(window)
            rows.append([at.get(i, IGNORED) for i in range(len(window.ids))])
    if not rows:
        raise LayerscopeError(
            f"{corpus.name}: no word keeps a token within `max_length`: give a larger one"
        )
    return windows, rows


def _is_table_of_lists(data: Any) -> bool:
    """Return whether data are a table with lists of words and of labels."""
    if not is_frame(data) and table_suffix(data) not in (*JSON_LINES, *PARQUET):
        return False
    if (frame := table_of(data)) is None:
        return False
    found = [
        next((frame[name] for name in names if name in frame), None) for names in (WORDS, LABELS)
    ]
    return all(
        column is not None and len(column) and not isinstance(column.iloc[0], str)
        for column in found
    )


@dataclass(frozen=True)
class Example:
    """A sample with its label: a class, a row of them (one a token), or None; and a seed of its own."""

    sample: Any
    label: Any
    seed: tuple[int, int, int]


Label = Callable[[dict[str, Tensor], Sequence[Example], Any], Tensor]


class Examples(Dataset[Example]):
    """Samples as an encoder batches them, and labels; what is random in one follows from seed, epoch and index alone.

    So a training that resumes from a checkpoint meets the very same examples; with `augment` they
    are images.
    """

    def __init__(
        self,
        name: str,
        samples: Sequence[Any],
        labels: Sequence[Any] | None,
        seed: int = 0,
        *,
        augment: bool = False,
    ) -> None:
        self.name, self.epoch = name, 0
        self.samples, self.labels, self.seed, self.augment = samples, labels, seed, augment

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Example:
        seed = (self.seed, self.epoch, index)
        sample = self.samples[index]
        if self.augment:
            sample = augmented(sample, np.random.default_rng(seed))
        return Example(sample, None if self.labels is None else self.labels[index], seed)

    def drawn(self, n: int | None, seed: int) -> "Examples":
        """Return `n` of these at most, drawn with a seed and never augmented, to evaluate on."""
        rows = list(range(len(self)))
        if n is not None and n < len(self):
            rows = sorted(np.random.default_rng(seed).choice(len(self), n, replace=False).tolist())
        labels = None if self.labels is None else [self.labels[row] for row in rows]
        return Examples(self.name, pick(self.samples, rows), labels)


def augmented(image: Any, rng: np.random.Generator) -> Any:
    """Return a PIL image shifted by up to an eighth of each side, flipped half of the time, turned by up to ±15°.

    Source: Tracing Representation Progression, appendix C.2 (vision models from scratch).
    """
    from PIL import Image

    width, height = image.size
    across, down = max(1, round(width * PADDING)), max(1, round(height * PADDING))
    left, top = rng.integers(-across, across + 1), rng.integers(-down, down + 1)
    found = image.crop((left, top, left + width, top + height))  # what lies outside is black
    if rng.random() < FLIPPED:
        found = found.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return found.rotate(rng.uniform(-DEGREES, DEGREES), resample=Image.Resampling.BILINEAR)


def lengths_of(examples: Examples) -> np.ndarray[Any, Any] | None:
    """Return the lengths of examples that are token ids, None where they do not differ."""
    tokens = hasattr(examples.samples[0], "ids")  # images are not opened
    found = np.array([len(sample.ids) for sample in examples.samples] if tokens else [0])
    return found if found.min() < found.max() else None


class ByLength(Sampler[int]):
    """The order of texts in a training: random by seed and epoch, but those of one batch are about equally long."""

    def __init__(self, examples: Examples, lengths: np.ndarray[Any, Any], batch_size: int) -> None:
        self.examples, self.lengths, self.batch_size = examples, lengths, batch_size

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng((self.examples.seed, self.examples.epoch))
        order, size = rng.permutation(len(self.lengths)), BATCHES * self.batch_size
        parts = [order[start : start + size] for start in range(0, len(order), size)]
        alike = np.concatenate(
            [part[np.argsort(self.lengths[part], kind="stable")] for part in parts]
        )
        whole = (
            len(alike) // self.batch_size * self.batch_size
        )  # the batch that is not full stays the last
        batches = rng.permutation(alike[:whole].reshape(-1, self.batch_size))
        yield from np.concatenate([batches.reshape(-1), alike[whole:]]).tolist()


def batched(examples: Sequence[Example], encoder: Any, label: Label) -> dict[str, Tensor]:
    """Return a batch as a model's encoder makes it, with the `labels` [B] or [B, T] that a function gives it."""
    inputs = encoder.batch([example.sample for example in examples])
    batch = dict(inputs.named) or {"inputs": inputs.positional}
    return batch | {"labels": label(batch, examples, encoder)}


def class_labels(batch: dict[str, Tensor], examples: Sequence[Example], encoder: Any) -> Tensor:
    """Return the class of each sample, or of each token, those of padding ignored."""
    found = [example.label for example in examples]
    return torch.tensor(found) if isinstance(found[0], int) else padded(found, IGNORED)


def next_tokens(batch: dict[str, Tensor], examples: Sequence[Example], encoder: Any) -> Tensor:
    """Return the tokens themselves, for causal language models; the first, which nothing predicts, is ignored."""
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, IGNORED)
    labels[:, 0] = IGNORED
    return labels


def masked_tokens(batch: dict[str, Tensor], examples: Sequence[Example], encoder: Any) -> Tensor:
    """Mask tokens in the batch and return what they were; which ones follows from the examples' seeds."""
    from transformers import DataCollatorForLanguageModeling

    tokenizer, ids = encoder.tokenizer, batch["input_ids"]
    masking = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    special = [
        tokenizer.get_special_tokens_mask(row, already_has_special_tokens=True)
        for row in ids.tolist()
    ]
    fixed = torch.tensor(special) | (batch["attention_mask"] == 0)
    drawn = np.random.default_rng([number for example in examples for number in example.seed])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(drawn.integers(2**62)))
        labels: Tensor
        batch["input_ids"], labels = masking.torch_mask_tokens(ids, fixed)
    return labels
