"""Sentences with a label a word, as a token classifier is trained on them: the label stands at a word's first token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.evaluation.probing.tagged import LABELS, WORDS, Tagged, first_tokens, tagged_rows
from layerscope.inputs.tables import JSON_LINES, PARQUET, is_frame, table_of, table_suffix
from layerscope.training.loss import IGNORED


@dataclass(frozen=True)
class TaggedCorpus:
    """Tagged sentences, taken and split as a `Corpus` is."""

    tagged: Tagged
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the file is called."""
        return self.tagged.name

    @property
    def labels(self) -> Sequence[Sequence[str]]:
        """The labels of each sentence."""
        return self.tagged.labels

    def every_label(self) -> set[str]:
        """Return the labels there are."""
        return {label for row in self.tagged.labels for label in row}

    def __len__(self) -> int:
        return len(self.tagged.sentences)

    def take(self, indices: Sequence[int]) -> TaggedCorpus:
        """Return some of the sentences."""
        sentences, labels = self.tagged.sentences, self.tagged.labels
        kept = Tagged(self.name, tuple(sentences[i] for i in indices), tuple(labels[i] for i in indices))
        return TaggedCorpus(kept, self.notes)

    def fingerprint(self) -> str:
        """Return the sha256 (hex) of words and labels."""
        return self.tagged.fingerprint()

    def encoded(self, encoder: Any, classes: Sequence[str]) -> tuple[list[Any], list[list[int]]]:
        """Return each sentence as the model reads it, and the class of each of its tokens, most of them ignored."""
        number = {name: i for i, name in enumerate(classes)}
        windows, rows = [], []
        read = first_tokens(encoder, self.tagged.sentences, self.name)
        for (window, starts), labels in zip(read, self.tagged.labels, strict=True):
            row = [IGNORED] * len(window.ids)
            for start, label in zip(starts, labels, strict=True):
                if start >= 0:
                    row[start] = number[label]
            if any(label != IGNORED for label in row):
                windows.append(window)
                rows.append(row)
        if not rows:
            raise LayerscopeError(f"{self.name}: no word keeps a token within --max-length: give more")
        return windows, rows


def is_tagged(data: Any) -> bool:
    """Return whether data are a table with lists of words and of labels."""
    if not is_frame(data) and table_suffix(data) not in (*JSON_LINES, *PARQUET):
        return False
    if (frame := table_of(data)) is None:
        return False
    found = [next((frame[name] for name in names if name in frame), None) for names in (WORDS, LABELS)]
    return all(column is not None and len(column) and not isinstance(column.iloc[0], str) for column in found)


def open_tagged(data: Any) -> TaggedCorpus:
    """Return the tagged sentences of a table file or a pandas frame."""
    return TaggedCorpus(tagged_rows(data, "token-classification"))
