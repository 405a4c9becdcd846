"""Sentences with a label for each word, and where a model's tokens say each word begins."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from layerscope.core import LayerscopeError, existing, folder_name, near
from layerscope.core.labels import WHOLE
from layerscope.inputs import Window
from layerscope.inputs.drawing import drawn_rows
from layerscope.inputs.samples import Modality, hash_of
from layerscope.inputs.tables import is_frame, table_of, table_suffix

WORDS, LABELS = ("tokens", "words"), ("labels", "tags")
"""Names that the two columns may have."""


@dataclass(frozen=True)
class Tagged:
    """Sentences as words, each word with its label."""

    name: str
    sentences: tuple[tuple[str, ...], ...]
    labels: tuple[tuple[str, ...], ...]

    modality: ClassVar[Modality] = "text"

    @property
    def samples(self) -> list[str]:
        """The sentences as texts."""
        return [" ".join(words) for words in self.sentences]

    def fingerprint(self) -> str:
        """Return the sha256 (hex) of words and labels."""
        return hash_of((self.sentences, self.labels))


def read_tagged(data: Any, samples: int | None, seed: int) -> Tagged:
    """Return the tagged sentences of a JSONL, CSV, TSV or Parquet file or a pandas frame, or some seeded ones of them.

    A row has `tokens` (or `words`) and `labels` (or `tags`), two lists of one length, or texts with
    blanks between. Raises `LayerscopeError` for another table, and where fewer than 2 labels stand
    in 5 sentences.
    """
    whole = tagged_rows(data)
    total = len(whole.sentences)
    chosen, _ = drawn_rows(total, None, samples or total, seed)
    tagged = Tagged(
        whole.name,
        tuple(whole.sentences[row] for row in chosen),
        tuple(whole.labels[row] for row in chosen),
    )
    sentences = Counter(label for labels in tagged.labels for label in set(labels))
    if sum(count >= WHOLE for count in sentences.values()) < 2:
        raise LayerscopeError(
            f"{tagged.name}: fewer than 2 labels occur in {WHOLE} sentences: give more sentences"
        )
    return tagged


def tagged_rows(data: Any, reader: str = "token-probe") -> Tagged:
    """Return every tagged sentence of a table file or a pandas frame, for `reader`, which its errors name."""
    path = "the data frame"
    name = "frame"
    if not is_frame(data):
        path = str(data)
        file = existing(data, "task file").name
        name = file[: file.lower().rfind(table_suffix(data) or ".")]
    frame = table_of(data)
    if frame is None:
        raise LayerscopeError(
            f"{path} is not a table: {reader} reads JSONL, CSV, TSV or Parquet"
        )
    columns = []
    for names in (WORDS, LABELS):
        column = next((name for name in names if name in frame), None)
        if column is None:
            hint = near(names[0], frame) or ":"
            raise LayerscopeError(
                f"{path} has no column {names[0]!r}{hint} it reads tokens and labels, two lists of equal length per row"
            )
        lists = []
        for i, cell in enumerate(frame[column]):
            lists.append(_listed(cell, f"{path}: row {i}", column))
        columns.append(tuple(lists))
    sentences, labels = columns
    for i, (words, tags) in enumerate(zip(sentences, labels, strict=True)):
        if len(words) != len(tags) or not words:
            raise LayerscopeError(
                f"{path}: row {i} has {len(words)} tokens and {len(tags)} labels: give one for each"
            )
    return Tagged(folder_name(name), sentences, labels)


def _listed(cell: Any, row: str, column: str) -> tuple[str, ...]:
    cells = cell.split() if isinstance(cell, str) else cell
    if isinstance(cells, np.ndarray):
        cells = cells.tolist()
    if not isinstance(cells, (list, tuple)) or not all(map(_is_word, cells)):
        raise LayerscopeError(
            f"{row} has {cell!r:.60} as {column}: give a list of texts or whole numbers, or a text separated by spaces"
        )
    return tuple(map(str, cells))


def _is_word(item: object) -> bool:
    return type(item) in (str, int) and item != ""


def first_tokens(
    encoder: Any, sentences: Sequence[Sequence[str]], name: str
) -> list[tuple[Window, list[int]]]:
    """Return each sentence as the model reads it, and the position of the first token of each of its words.

    Words stand with blanks between; a word's first token is the first that covers a character of
    it. The position is -1 where none does: beyond the maximal length, or where the tokenizer drops
    the word. Raises `LayerscopeError` for a tokenizer that does not say where its tokens stand.
    """
    tokenizer = encoder.tokenizer
    if not getattr(tokenizer, "is_fast", False):
        raise LayerscopeError(
            f"the tokenizer of {name} ({type(tokenizer).__name__}) is a slow one, which does not say where its "
            f"tokens are in a text: a token probe needs a fast one (tokenizer.json)"
        )
    texts = [" ".join(words) for words in sentences]
    read = tokenizer(
        texts,
        return_offsets_mapping=True,
        truncation=True,
        max_length=encoder.max_length,
    )
    windows = map(Window, texts, map(tuple, read["input_ids"]))
    starts = map(_starts, sentences, read["offset_mapping"])
    return [*zip(windows, starts, strict=True)]


def _starts(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[int]:
    """Return for each word the first token that overlaps its characters, or -1; special tokens cover none.

    >>> _starts(["good", "food"], [(0, 0), (0, 2), (2, 4), (5, 9), (0, 0)])
    [1, 3]
    """
    first = []
    start = 0
    for word in words:
        end = start + len(word)
        token = -1
        for i, (left, right) in enumerate(offsets):
            if left < end and right > max(start, left):
                token = i
                break
        first.append(token)
        start = end + 1
    return first
