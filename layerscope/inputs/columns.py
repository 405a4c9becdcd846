import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscope.core.errors import LayerscopeError, count, folder_name, listed, near
from layerscope.core.labels import WHOLE, is_target
from layerscope.inputs.corpus import Corpus, Labels
from layerscope.inputs.samples import Conversation
from layerscope.inputs.text_files import without_surrogates

PAIR_COLUMNS = {
    "text_a": "text_b",
    "sentence1": "sentence2",
    "sentence_a": "sentence_b",
    "question1": "question2",
    "premise": "hypothesis",
}
"""The columns of the second texts of pairs, by those of the first."""
TEXT_COLUMNS = (
    "text",
    "sentence",
    "content",
    "document",
    "review",
    "question",
    "title",
    "body",
    "messages",
)
LABEL_COLUMNS = (
    "label", "labels", "class", "category", "target", "topic", "module", "intent", "sentiment", "genre",
    "coarse_label",
)  # fmt: skip
SEVERAL = 20
"""Different whole numbers that are classes, however few samples each has."""
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})(\.0+)?")
NO_LABELS = "neither classes nor numbers (but lists or nothing)"


@dataclass(frozen=True)
class Columns:
    """The columns of texts and labels; None where they are to be found by their usual names, or there is none."""

    text: str | None = None
    label: str | None = None
    label_is_named: bool = True
    """Whether the user says that a column holds labels: what are none is refused, else left out."""

    def refuse(self, where: str) -> None:
        """Raise where a column is named and the data have none."""
        for option, name in (("text_column", self.text), ("label_column", self.label)):
            if name is not None:
                raise LayerscopeError(
                    f"`{option}={name!r}`: {where} has no columns, leave it out"
                )


def missing(cells: Sequence[Any]) -> NDArray[np.bool_]:
    """Return which cells hold nothing: None, NaN, NaT, or blank text."""
    import pandas as pd

    blank = [isinstance(cell, str) and not cell.strip() for cell in cells]
    absent = pd.Series(cells, dtype=object).isna().to_numpy()
    return np.asarray(absent | np.array(blank, dtype=bool))


def missing_labels(labels: Sequence[Any]) -> NDArray[np.bool_]:
    """Return which labels hold nothing; in tables that may be written as nan."""
    written = [str(label).strip().lower() == "nan" for label in labels]
    return np.asarray(missing(labels) | np.array(written, dtype=bool))


def choose_columns(
    names: Sequence[str], columns: Columns, where: str
) -> tuple[Columns, list[str]]:
    """Return a table's text column and its label column, if it has one, with a note on each that is not named."""
    text = choose_column(names, columns.text, (*TEXT_COLUMNS, *PAIR_COLUMNS), where)
    label = choose_column(names, columns.label, LABEL_COLUMNS, where)
    if text is None:
        raise LayerscopeError(
            f"{where} has no column of a usual name, such as {TEXT_COLUMNS[0]} (its columns: "
            f"{', '.join(names)}): name that of the texts with `text_column`"
        )
    if columns.label == text:
        raise LayerscopeError(
            f"{where}: column {text!r} cannot hold both texts and labels: name another for one"
        )
    label = None if label == text else label
    notes = []
    if columns.text is None:
        notes.append(f"text column: {text!r} (guessed)")
    if columns.label is None and label is not None:
        notes.append(f"label column: {label!r} (guessed)")
    return Columns(text, label, columns.label is not None), notes


def choose_column(
    names: Sequence[str], named: str | None, usual: Sequence[str], where: str
) -> str | None:
    """Return a column: the named one, else the first with a usual name, else None."""
    if named is None:
        lowered = {name.lower(): name for name in reversed(names)}
        return next((lowered[name] for name in usual if name in lowered), None)
    if named not in names:
        raise LayerscopeError(
            f"{where} has no column {named!r}{near(named, names)} (its columns: {', '.join(names)})"
        )
    return named


def frame_corpus(
    frame: Any, name: str, columns: Columns, where: str, notes: Sequence[str] = ()
) -> Corpus:
    """Return the texts of a pandas frame, named by their rows from 0, with labels where a column holds them."""
    if len(frame) == 0:
        raise LayerscopeError(f"{where} has no rows: give at least one text")
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise LayerscopeError(f"{where} has two columns named {twice!r}: rename one")
    chosen, guessed = choose_columns(list(frame.columns), columns, where)
    labels = None if chosen.label is None else frame[chosen.label].tolist()
    cells = frame[chosen.text].tolist()
    return text_corpus(cells, name, where, labels, chosen, [*notes, *guessed])


def text_corpus(
    cells: Sequence[Any],
    name: str,
    where: str,
    labels: Sequence[Any] | None = None,
    columns: Columns = Columns(),
    notes: Sequence[str] = (),
) -> Corpus:
    """Return texts, from a list or the columns of a table, as a corpus; rows without text or label are left out.

    Notes say which. Labels that are no classes are refused where they were named, else left out.
    """
    cells = [*map(conversation_of, cells)]
    lines = list(notes)
    filled = ~missing(cells)
    texts = f"{where}: column {columns.text!r}" if columns.text else where
    for row in np.flatnonzero(filled).tolist():
        if not isinstance(cells[row], str):
            kind = type(cells[row]).__name__
            raise LayerscopeError(
                f"{texts} holds {cells[row]!r:.40} ({kind}) in row {row:,}, not a text: "
                f"{'name another column' if columns.text else 'give texts'}"
            )
    if not filled.any():
        raise LayerscopeError(f"{texts} holds no text: every row is empty")
    kept = filled
    classes = None
    if labels is not None:
        labelled = filled & ~missing_labels(labels)
        kept_rows = np.flatnonzero(labelled).tolist()
        classes = labels_of([labels[row] for row in kept_rows])
        source = f"column {columns.label!r}" if columns.label else "the list of labels"
        fault = f"{source} holds {NO_LABELS}"
        if classes is not None:
            kept = labelled
            if is_target(classes):
                different = len({*classes})
                lines.append(
                    f"{source} holds numbers to predict, not classes: {different:,} differ"
                )
        elif columns.label_is_named:
            raise LayerscopeError(f"{where}: {fault}: leave it out")
        else:
            lines.append(f"no labels: {fault}")
    for what, lost in (("a text", ~filled), ("a label", filled & ~kept)):
        if lost.any():
            rows = [*map(str, np.flatnonzero(lost))]
            lines.append(
                f"{count(len(rows), 'row')} without {what} left out: {listed(rows)}"
            )
    rows_kept = np.flatnonzero(kept).tolist()
    samples = [without_surrogates(cells[row]) for row in rows_kept]
    names = tuple(map(str, rows_kept))
    return Corpus(folder_name(name), "text", samples, names, classes, tuple(lines))


def conversation_of(cell: Any) -> Any:
    """Return a list of messages as a conversation, and any other cell as it is."""
    if isinstance(cell, (str, bytes)) or not isinstance(cell, (Sequence, np.ndarray)):
        return cell
    for message in cell:
        if not isinstance(message, Mapping):
            return cell
        if not all(isinstance(message.get(key), str) for key in ("role", "content")):
            return cell
    if not len(cell):
        return cell
    return Conversation(map(dict, cell))


def needed_labels(cells: Sequence[Any]) -> Labels:
    """Return cells as labels; raises `LayerscopeError` where they are none."""
    labels = labels_of(cells)
    if labels is None:
        raise LayerscopeError(f"the list of labels holds {NO_LABELS}: leave it out")
    return labels


def labels_of(cells: Sequence[Any]) -> Labels | None:
    """Return cells as classes, or as `float` where they are numbers to predict; None if they are neither.

    Fractions are numbers to predict, and so are whole numbers of which more than 20 differ and
    fewer than five samples share one on average. Whole numbers that all differ are names of rows.
    """
    classes = class_labels(cells)
    if classes is None:
        return _numbers(cells)
    if any(isinstance(label, str) for label in classes):
        return classes
    different = len({*classes})
    n = len(classes)
    if different <= SEVERAL or n >= WHOLE * different or n == different:
        return classes
    return _numbers(classes)


def _numbers(cells: Sequence[Any]) -> Labels | None:
    """Return cells as numbers; None if one is not."""
    try:
        numbers = tuple(float(cell) for cell in cells)
    except (TypeError, ValueError):  # lists, and words
        return None
    if numbers and all(map(math.isfinite, numbers)):
        return numbers
    return None


def class_labels(cells: Sequence[Any]) -> Labels | None:
    """Return cells as class labels, whole numbers as `int`, others as `str`; None if they are no classes.

    Fractions are scores and lists are several classes: neither is a class.
    """
    values = [
        cell.item() if getattr(cell, "ndim", None) == 0 else cell for cell in cells
    ]
    if not values or not all(isinstance(value, (str, int, float)) for value in values):
        return None
    if not all(isinstance(value, str) or math.isfinite(value) for value in values):
        return None
    if any(isinstance(value, str) for value in values):
        return _of_texts([without_surrogates(str(value)) for value in values])
    is_whole = all(float(value).is_integer() for value in values)
    return tuple(map(int, values)) if is_whole else None


def _of_texts(texts: Sequence[str]) -> Labels | None:
    """Return texts as class labels, as `int` where all are whole numbers; None if they are fractions."""
    if all(map(_WHOLE.fullmatch, texts)):
        return tuple(int(text.partition(".")[0]) for text in texts)
    is_number = all(map(_NUMBER.fullmatch, texts))
    if is_number and not all(float(text).is_integer() for text in texts):
        return None
    return tuple(texts)
