import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscope.core.errors import LayerscopeError, count, folder_name, listed, near
from layerscope.inputs.corpus import Corpus, Labels
from layerscope.inputs.tables import without_surrogates

TEXT_COLUMNS = ("text", "sentence", "content", "document", "review", "question", "title", "body")
PAIR_COLUMNS = ("text_a", "sentence1", "sentence_a", "question1", "premise")
LABEL_COLUMNS = (
    "label", "labels", "class", "category", "target", "topic", "module", "intent", "sentiment", "genre",
    "coarse_label",
)  # fmt: skip
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})(\.0+)?")
_LOOKED_AT = 1000  # cells, to see what a column holds


@dataclass(frozen=True)
class Columns:
    """The columns a user named; None where they are to be guessed."""

    text: str | None = None
    label: str | None = None

    def refuse(self, where: str) -> None:
        """Raise where a column is named and the data have none."""
        for option, name in (("text_column", self.text), ("label_column", self.label)):
            if name is not None:
                raise LayerscopeError(f"`{option}={name!r}`: {where} has no columns, leave it out")


def missing(cells: Sequence[Any]) -> NDArray[np.bool_]:
    """Return which cells hold nothing: None, NaN, NaT, or blank text."""
    import pandas as pd

    series = pd.Series(cells, dtype=object)
    blank = np.array([isinstance(cell, str) and not cell.strip() for cell in cells], dtype=bool)
    return np.asarray(series.isna().to_numpy() | blank)


def column_kind(cells: Sequence[Any]) -> str:
    """Return what cells hold: `text`, `numbers`, `texts and other values`, `other values` or `nothing`."""
    found = [cell for cell, empty in zip(cells, missing(cells), strict=True) if not empty]
    strings = [cell for cell in found if isinstance(cell, str)]
    if not found:
        return "nothing"
    if len(strings) == len(found):
        return "numbers" if all(map(_NUMBER.fullmatch, strings)) else "text"
    if strings:
        return "texts and other values"
    return (
        "numbers"
        if all(isinstance(cell, (int, float, np.number, np.bool_)) for cell in found)
        else "other values"
    )


def choose_columns(frame: Any, columns: Columns, where: str) -> tuple[str, str | None, list[str]]:
    """Return a frame's text column, its label column or None, and a note on each that was guessed."""
    known = list(frame.columns)
    twice = [name for name in known if known.count(name) > 1]
    if twice:
        raise LayerscopeError(f"{where} has two columns named {twice[0]!r}: rename one")
    by_label = choose_column(known, columns.label, LABEL_COLUMNS, where)
    text, note = _named(columns.text, known, where), ""
    if text is None:
        text, note = _guess_text(frame, known, by_label, where)
    if columns.label == text:
        raise LayerscopeError(
            f"{where}: column {text!r} cannot hold both texts and labels: name another for one"
        )
    label = None if by_label == text else by_label
    guessed = (
        f"label column: {label!r} (guessed)" if label is not None and columns.label is None else ""
    )
    return text, label, [line for line in (note, guessed) if line]


def choose_column(
    known: Sequence[str], named: str | None, usual: Sequence[str], where: str
) -> str | None:
    """Return a column: the named one, else the first with a usual name, else None."""
    return _named(named, known, where) or _first(known, usual)


def _named(name: str | None, known: Sequence[str], where: str) -> str | None:
    if name is not None and name not in known:
        columns = ", ".join(known)
        raise LayerscopeError(
            f"{where} has no column {name!r}{near(name, known)} (its columns: {columns})"
        )
    return name


def _first(known: Sequence[str], wanted: Sequence[str]) -> str | None:
    lowered = {name.lower(): name for name in reversed(known)}
    return next((lowered[name] for name in wanted if name in lowered), None)


def _guess_text(frame: Any, known: Sequence[str], label: str | None, where: str) -> tuple[str, str]:
    """Return the column of texts and the note on it: by its name, else the longest texts on average."""
    name = _first(known, TEXT_COLUMNS)
    if name is None and (pair := _first(known, PAIR_COLUMNS)) is not None:
        return pair, f"pairs: {pair} is used"
    if name is None:
        heads = {column: frame[column].head(_LOOKED_AT).tolist() for column in known}
        kinds = {column: column_kind(cells) for column, cells in heads.items()}
        texts = {
            column: filter(lambda cell: isinstance(cell, str), heads[column]) for column in known
        }
        lengths = {
            column: np.mean([*map(len, texts[column])])
            for column in known
            if kinds[column] == "text"
        }
        if not lengths:
            held = ", ".join(f"{column} ({kind})" for column, kind in kinds.items())
            raise LayerscopeError(
                f"{where} has no column of texts; it has {held}: name one with `text_column`"
            )
        name = max(lengths, key=lambda column: (column != label, lengths[column]))
    return name, f"text column: {name!r} (guessed)"


def frame_corpus(
    frame: Any, name: str, columns: Columns, where: str, notes: Sequence[str] = ()
) -> Corpus:
    """Return the texts of a pandas frame, named by their rows from 0, with labels where a column holds them."""
    if len(frame) == 0:
        raise LayerscopeError(f"{where} has no rows: give at least one text")
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    text, label, guessed = choose_columns(frame, columns, where)
    labels = None if label is None else frame[label].tolist()
    named = Columns(text, label), columns.label is not None, [*notes, *guessed]
    return text_corpus(frame[text].tolist(), name, where, labels, *named)


def text_corpus(
    cells: Sequence[Any],
    name: str,
    where: str,
    labels: Sequence[Any] | None = None,
    columns: Columns = Columns(),
    label_named: bool = True,
    notes: Sequence[str] = (),
    called: Sequence[str] | None = None,
    first: int = 0,
) -> Corpus:
    """Return texts, from a list or the columns of a table, as a corpus; rows without text or label are left out.

    Notes say which, by what rows are `called` or else their numbers; errors count rows from `first`
    on. Labels that are no classes are refused where they were named, else left out.
    """
    found, empty = list(notes), missing(cells)

    def shown(rows: Sequence[int] | NDArray[np.intp]) -> str:
        return (
            f"rows {listed([*map(str, rows)])}"
            if called is None
            else listed([called[row] for row in rows])
        )

    texts = f"{where}: column {columns.text!r}" if columns.text else where
    label_source = f"{where}: column {columns.label!r}" if columns.label else "the list of labels"
    _check_texts(cells, empty, texts, bool(columns.text), first)
    rows, left_out, classes = np.flatnonzero(~empty).tolist(), np.flatnonzero(empty), None
    if not rows:
        raise LayerscopeError(f"{texts} holds no text: every row is empty")
    if len(left_out):
        found.append(f"{count(len(left_out), 'empty text')} left out: {shown(left_out)}")
    if labels is not None:
        blank = missing(labels) | np.array(
            [str(label).strip().lower() == "nan" for label in labels]
        )
        labelled, left_out = (
            np.flatnonzero(~empty & ~blank).tolist(),
            np.flatnonzero(~empty & blank),
        )
        classes, fault = _classes([labels[i] for i in labelled])
        if fault and label_named:
            raise LayerscopeError(f"{label_source} {fault}: leave it out")
        if fault:
            found.append(f"no labels: {label_source.removeprefix(f'{where}: ')} {fault}")
        else:
            rows = labelled
            if len(left_out):
                found.append(
                    f"{count(len(left_out), 'row')} without a label left out: {shown(left_out)}"
                )
    mended = [without_surrogates(cells[i]) for i in rows]
    if halves := [i for i, text in zip(rows, mended, strict=True) if text != cells[i]]:
        found.append(
            f"{count(len(halves), 'text')} held unpaired surrogates, now U+FFFD: {shown(halves)}"
        )
    return Corpus(folder_name(name), "text", mended, tuple(map(str, rows)), classes, tuple(found))


def _check_texts(
    cells: Sequence[Any], empty: NDArray[np.bool_], texts: str, in_column: bool, first: int
) -> None:
    filled = [(row, cell) for row, cell in enumerate(cells) if not empty[row]]
    odd = next(((row, cell) for row, cell in filled if not isinstance(cell, str)), None)
    mend = "name another" if in_column else "give texts"
    if column_kind(cells) == "numbers" and (
        in_column or odd
    ):  # in a list, numbers written as text are meant as texts
        raise LayerscopeError(f"{texts} holds numbers (such as {filled[0][1]}), not texts: {mend}")
    if odd is not None:
        value, kind = f"{odd[1]!r:.40}", type(odd[1]).__name__
        fault = f"holds values of type {kind} (such as {value}), not texts"
        if any(isinstance(text, str) for _, text in filled):
            fault, mend = (
                f"mixes texts and other values: row {first + odd[0]:,} holds {value} ({kind})",
                "make it text",
            )
        raise LayerscopeError(f"{texts} {fault}: {mend}")


def _classes(cells: Sequence[Any]) -> tuple[Labels | None, str]:
    """Return the classes that cells are, or None and why they are none."""
    classes = class_labels(cells) if cells else None
    return classes, "" if classes else "holds scores or lists, not classes" if cells else "is empty"


def needed_classes(labels: Sequence[Any]) -> Labels:
    """Return labels as classes; raises `LayerscopeError` where they are none."""
    classes, fault = _classes(labels)
    if classes is None:
        raise LayerscopeError(f"the list of labels {fault}: leave it out")
    return classes


def class_labels(cells: Sequence[Any]) -> Labels | None:
    """Return cells as class labels, whole numbers as `int`, others as `str`; None if they are no classes.

    Fractions are scores and lists are several classes: neither is a class.
    """
    plain = [
        cell.item() if hasattr(cell, "item") and getattr(cell, "ndim", 0) == 0 else cell
        for cell in cells
    ]
    values = without_surrogates(plain)
    if all(isinstance(value, (int, float)) for value in values):
        return (
            tuple(map(int, values)) if all(float(value).is_integer() for value in values) else None
        )
    if not all(
        isinstance(v, str) or (isinstance(v, (int, float)) and math.isfinite(v)) for v in values
    ):
        return None
    texts = tuple(map(str, values))
    if all(map(_WHOLE.fullmatch, texts)):
        return tuple(int(float(text)) if "." in text else int(text) for text in texts)
    scores = all(map(_NUMBER.fullmatch, texts)) and not all(
        float(text).is_integer() for text in texts
    )
    return None if scores else texts
