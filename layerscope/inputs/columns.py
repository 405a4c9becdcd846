import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscope.core.errors import LayerscopeError, count, folder_name, listed, near
from layerscope.inputs.corpus import Corpus, Labels
from layerscope.inputs.text_files import without_surrogates

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
    """The columns of texts and labels; None where they are to be guessed, or there is none."""

    text: str | None = None
    label: str | None = None
    label_is_named: bool = True
    """Whether the user says that a column holds labels: what are none is refused, else left out."""

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
    filled = [cell for cell, empty in zip(cells, missing(cells), strict=True) if not empty]
    strings = [cell for cell in filled if isinstance(cell, str)]
    if not filled:
        return "nothing"
    if len(strings) == len(filled):
        return "numbers" if all(map(_NUMBER.fullmatch, strings)) else "text"
    if strings:
        return "texts and other values"
    return (
        "numbers"
        if all(isinstance(cell, (int, float, np.number, np.bool_)) for cell in filled)
        else "other values"
    )


def missing_labels(labels: Sequence[Any]) -> NDArray[np.bool_]:
    """Return which labels hold nothing; in tables that may be written as nan."""
    written = [str(label).strip().lower() == "nan" for label in labels]
    return np.asarray(missing(labels) | np.array(written))


def choose_columns(frame: Any, columns: Columns, where: str) -> tuple[Columns, list[str]]:
    """Return a frame's text column and its label column, if it has one, with a note on each that was guessed."""
    names = list(frame.columns)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise LayerscopeError(f"{where} has two columns named {twice[0]!r}: rename one")
    label = choose_column(names, columns.label, LABEL_COLUMNS, where)
    text, notes = _named(columns.text, names, where), list[str]()
    if text is None:
        text, note = _guess_text(frame, names, label, where)
        notes.append(note)
    if columns.label == text:
        raise LayerscopeError(
            f"{where}: column {text!r} cannot hold both texts and labels: name another for one"
        )
    label = None if label == text else label
    if label is not None and columns.label is None:
        notes.append(f"label column: {label!r} (guessed)")
    return Columns(text, label, columns.label is not None), notes


def choose_column(
    names: Sequence[str], named: str | None, usual: Sequence[str], where: str
) -> str | None:
    """Return a column: the named one, else the first with a usual name, else None."""
    return _named(named, names, where) or _first(names, usual)


def _named(name: str | None, names: Sequence[str], where: str) -> str | None:
    if name is not None and name not in names:
        columns = ", ".join(names)
        raise LayerscopeError(
            f"{where} has no column {name!r}{near(name, names)} (its columns: {columns})"
        )
    return name


def _first(names: Sequence[str], wanted: Sequence[str]) -> str | None:
    lowered = {name.lower(): name for name in reversed(names)}
    return next((lowered[name] for name in wanted if name in lowered), None)


def _guess_text(frame: Any, names: Sequence[str], label: str | None, where: str) -> tuple[str, str]:
    """Return the column of texts and the note on it: by its name, else the longest texts on average."""
    name = _first(names, TEXT_COLUMNS)
    if name is None and (pair := _first(names, PAIR_COLUMNS)) is not None:
        return pair, f"pairs: {pair} is used"
    if name is None:
        heads = {column: frame[column].head(_LOOKED_AT).tolist() for column in names}
        kinds = {column: column_kind(cells) for column, cells in heads.items()}
        texts = {
            column: filter(lambda cell: isinstance(cell, str), heads[column]) for column in names
        }
        lengths = {
            column: np.mean([*map(len, texts[column])])
            for column in names
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
    chosen, guessed = choose_columns(frame, columns, where)
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
    called: Sequence[str] | None = None,
) -> Corpus:
    """Return texts, from a list or the columns of a table, as a corpus; rows without text or label are left out.

    Notes and errors say which, by what rows are `called` or else their numbers. Labels that are no
    classes are refused where they were named, else left out.
    """
    lines, empty = list(notes), missing(cells)

    def shown(rows: NDArray[np.intp] | Sequence[int]) -> str:
        if called is None:
            return f"rows {listed([*map(str, rows)])}"
        return listed([called[row] for row in rows])

    texts = f"{where}: column {columns.text!r}" if columns.text else where
    _check_texts(cells, empty, texts, bool(columns.text), called)
    if empty.all():
        raise LayerscopeError(f"{texts} holds no text: every row is empty")
    if empty.any():
        lost = np.flatnonzero(empty)
        lines.append(f"{count(len(lost), 'empty text')} left out: {shown(lost)}")
    kept, classes = ~empty, None
    if labels is not None:
        classes, kept, fault = _labelled(labels, ~empty, where, columns)
        lost = np.flatnonzero(~empty & ~kept)
        if fault:
            lines.append(fault)
        if len(lost):
            lines.append(f"{count(len(lost), 'row')} without a label left out: {shown(lost)}")
    rows = np.flatnonzero(kept).tolist()
    mended = [without_surrogates(cells[i]) for i in rows]
    halves = [i for i, text in zip(rows, mended, strict=True) if text != cells[i]]
    if halves:
        lines.append(
            f"{count(len(halves), 'text')} held unpaired surrogates, now U+FFFD: {shown(halves)}"
        )
    return Corpus(folder_name(name), "text", mended, tuple(map(str, rows)), classes, tuple(lines))


def _labelled(
    labels: Sequence[Any], filled: NDArray[np.bool_], where: str, columns: Columns
) -> tuple[Labels | None, NDArray[np.bool_], str]:
    """Return the classes of rows that are filled, which rows have one, and a line where labels are no classes."""
    kept = filled & ~missing_labels(labels)
    classes, fault = _classes([labels[row] for row in np.flatnonzero(kept).tolist()])
    if not fault:
        return classes, kept, ""
    source = f"column {columns.label!r}" if columns.label else "the list of labels"
    if columns.label_is_named:
        beginning = f"{where}: " if columns.label else ""
        raise LayerscopeError(f"{beginning}{source} {fault}: leave it out")
    return None, filled, f"no labels: {source} {fault}"


def _check_texts(
    cells: Sequence[Any],
    empty: NDArray[np.bool_],
    texts: str,
    in_column: bool,
    called: Sequence[str] | None,
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
                f"mixes texts and other values: row {called[odd[0]] if called else odd[0]} holds {value} ({kind})",
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
