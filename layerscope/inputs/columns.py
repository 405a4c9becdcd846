import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from layerscope.core.errors import LayerscopeError, near
from layerscope.inputs.corpus import Corpus, Labels, count, folder_name, listed
from layerscope.inputs.tables import without_surrogates

TEXT_COLUMNS = ("text", "sentence", "content", "document", "review", "question", "title", "body")
PAIR_COLUMNS = ("text_a", "sentence1", "sentence_a", "question1", "premise")
LABEL_COLUMNS = (
    "label", "labels", "class", "category", "target", "topic", "module", "intent", "sentiment", "genre",
    "coarse_label",
)  # fmt: skip
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_LOOKED_AT = 1000  # cells, to tell what a column holds


@dataclass(frozen=True)
class Columns:
    """The columns a user named; None where they are to be guessed."""

    text: str | None = None
    label: str | None = None

    def refuse(self, where: str) -> None:
        """Raise where a column is named and the data have none."""
        for option, name in (("--text-column", self.text), ("--label-column", self.label)):
            if name is not None:
                raise LayerscopeError(f"{option} {name!r}: {where} has no columns, leave it out")


def is_missing(cell: Any) -> bool:
    """Tell whether a cell holds nothing: None, NaN, NaT, or blank text."""
    if isinstance(cell, str):
        return not cell.strip()
    # Only the not-a-number values differ from themselves; arrays and lists are no scalars at all.
    return cell is None or type(cell).__name__ == "NAType" or (_is_scalar(cell) and bool(cell != cell))


def _is_scalar(cell: Any) -> bool:
    return getattr(cell, "ndim", 0) == 0 and not isinstance(cell, (list, tuple, dict, set))


def column_kind(cells: Iterable[Any]) -> str:
    """Return what cells hold: `text`, `numbers`, `texts and other values`, `other values` or `nothing`."""
    found = [cell for cell in cells if not is_missing(cell)][:_LOOKED_AT]
    if not found:
        return "nothing"
    strings = [cell for cell in found if isinstance(cell, str)]
    if len(strings) == len(found):
        return "numbers" if all(_NUMBER.fullmatch(cell) for cell in strings) else "text"
    if strings:
        return "texts and other values"
    numbers = all(isinstance(c, (int, float)) or (hasattr(c, "dtype") and _is_scalar(c)) for c in found)
    return "numbers" if numbers else "other values"


def choose_columns(frame: Any, columns: Columns, where: str) -> tuple[str, str | None, list[str]]:
    """Return a frame's text column, its label column or None, and notes that tell what was guessed."""
    notes: list[str] = []
    known = list(frame.columns)
    if len(set(known)) < len(known):
        twice = next(name for name in known if known.count(name) > 1)
        raise LayerscopeError(f"{where} has two columns named {twice!r}: rename one")
    if columns.text is not None:
        _check_column(columns.text, known, where)
    by_label = choose_label(known, columns.label, where)
    text = columns.text or _guess_text(frame, known, by_label, where, notes)
    if columns.label == text:
        raise LayerscopeError(f"{where}: column {text!r} cannot be the texts and the labels: name another for one")
    label = None if by_label == text else by_label
    if label is not None and columns.label is None:
        notes.append(f"label column: {label!r} (guessed)")
    return text, label, notes


def choose_label(known: Sequence[str], named: str | None, where: str) -> str | None:
    """Return the label column: the named one, else the first with a usual name, else None."""
    if named is not None:
        _check_column(named, known, where)
    return named or _first(known, LABEL_COLUMNS)


def _check_column(name: str, known: Sequence[str], where: str) -> None:
    if name not in known:
        columns = ", ".join(known)
        raise LayerscopeError(f"{where} has no column {name!r}{near(name, known)} (its columns: {columns})")


def _first(known: Sequence[str], wanted: Sequence[str]) -> str | None:
    lowered = {name.lower(): name for name in reversed(known)}
    return next((lowered[name] for name in wanted if name in lowered), None)


def _guess_text(frame: Any, known: Sequence[str], label: str | None, where: str, notes: list[str]) -> str:
    name = _first(known, TEXT_COLUMNS)
    if name is None and (name := _first(known, PAIR_COLUMNS)) is not None:
        notes.append(f"pairs: {name} is used")
        return name
    if name is None:
        kinds = {column: column_kind(frame[column].head(_LOOKED_AT)) for column in known}
        texts = [column for column in known if kinds[column] == "text" and column != label]
        texts = texts or [column for column in known if kinds[column] == "text"]
        if not texts:
            held = ", ".join(f"{column} ({kind})" for column, kind in kinds.items())
            raise LayerscopeError(f"{where} has no column of texts; it has {held}: name one with --text-column")
        name = max(texts, key=lambda column: _mean_length(frame[column].head(_LOOKED_AT)))
    notes.append(f"text column: {name!r} (guessed)")
    return name


def _mean_length(cells: Iterable[Any]) -> float:
    lengths = [len(cell) for cell in cells if isinstance(cell, str)]
    return sum(lengths) / max(len(lengths), 1)


def frame_corpus(frame: Any, name: str, columns: Columns, where: str, notes: Sequence[str] = ()) -> Corpus:
    """Return the texts of a pandas frame, with labels where a column holds them.

    Rows are named by their number, from 0. Raises `LayerscopeError` where there is no row or no text,
    where a named column is missing, and where the text column holds something else than texts.
    """
    if len(frame) == 0:
        raise LayerscopeError(f"{where} has no rows: give at least one text")
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    text, label, told = choose_columns(frame, columns, where)
    return text_corpus(
        frame[text].tolist(),
        name=name,
        where=where,
        column=f"column {text!r}",
        labels=None if label is None else frame[label].tolist(),
        label_source=f"column {label!r}",
        label_named=columns.label is not None,
        notes=(*notes, *told),
    )


def text_corpus(
    texts: Sequence[Any],
    *,
    name: str,
    where: str,
    column: str = "the list",
    labels: Sequence[Any] | None = None,
    label_source: str = "the labels",
    label_named: bool = True,
    notes: Sequence[str] = (),
) -> Corpus:
    """Return texts as a corpus; rows without text or label are left out and told."""
    told = list(notes)
    _check_texts(texts, where, column)
    rows = [i for i, text in enumerate(texts) if not is_missing(text)]
    if not rows:
        raise LayerscopeError(f"{where}: {column} holds no text: every row is empty")
    _tell_left_out(told, "empty text", len(texts), rows)
    final: Labels | None = None
    if labels is not None:
        rows, final = _labelled(labels, rows, where, label_source, label_named, told)
    cleaned = [without_surrogates(texts[i]) for i in rows]
    mended = [str(i) for i, text in zip(rows, cleaned, strict=True) if text != texts[i]]
    if mended:
        told.append(f"{count(len(mended), 'text')} held half characters, now U+FFFD: rows {listed(mended)}")
    return Corpus(folder_name(name), "text", cleaned, tuple(map(str, rows)), final, tuple(told))


def _check_texts(texts: Sequence[Any], where: str, column: str) -> None:
    found = [text for text in texts if not is_missing(text)]
    row = next((i for i, t in enumerate(texts) if not isinstance(t, str) and not is_missing(t)), None)
    if row is None:
        # In a file all cells are strings; in a list the user wrote them as texts.
        if found and column != "the list" and all(_NUMBER.fullmatch(text) for text in found):
            raise LayerscopeError(f"{where}: {column} holds numbers (such as {found[0]}), not texts: name another")
        return
    value, kind = f"{texts[row]!r:.40}", type(texts[row]).__name__
    if any(isinstance(text, str) for text in found):
        raise LayerscopeError(
            f"{where}: {column} mixes texts and other values: row {row} holds {value} ({kind}): make it text"
        )
    held = "numbers" if column_kind(found) == "numbers" else f"values of type {kind}"
    raise LayerscopeError(f"{where}: {column} holds {held} (such as {value}), not texts: name another")


def _tell_left_out(notes: list[str], what: str, total: int, kept: Sequence[int]) -> None:
    left = sorted(set(range(total)).difference(kept)) if len(kept) < total else []
    if left:
        notes.append(f"{count(len(left), what)} left out: rows {listed([str(i) for i in left])}")


def _labelled(
    cells: Sequence[Any], rows: list[int], where: str, source: str, named: bool, notes: list[str]
) -> tuple[list[int], Labels | None]:
    """Return the rows with a label, and their labels; all rows and None where the cells are no classes."""
    blank = [i for i in rows if is_missing(cells[i]) or str(cells[i]).strip().lower() == "nan"]
    kept = sorted(set(rows).difference(blank))
    fault = None if kept else "is empty"
    labels = None
    if kept:
        labels = class_labels([cells[i] for i in kept])
        fault = None if labels is not None else "holds scores or lists, not classes"
    if fault is not None and named and source != "the labels":
        raise LayerscopeError(f"{where}: {source} {fault}: name another, or none")
    if fault is not None:
        notes.append(f"no labels: {source} {fault}")
        return rows, None
    if blank:
        shown = listed([str(i) for i in blank])
        notes.append(f"{count(len(blank), 'row')} without a label left out: rows {shown}")
    return kept, labels


def class_labels(cells: Sequence[Any]) -> Labels | None:
    """Return cells as class labels, whole numbers as `int`, others as `str`; None if they are no classes.

    Fractions are scores and lists are several classes: neither is a class.
    """
    values = [cell.item() if hasattr(cell, "item") and getattr(cell, "ndim", 0) == 0 else cell for cell in cells]
    values = without_surrogates(values)
    if not all(isinstance(value, (str, int, float)) for value in values):
        return None
    if all(isinstance(value, str) for value in values):
        if all(re.fullmatch(r"-?(0|[1-9]\d{0,17})(\.0+)?", value) for value in values):
            return tuple(int(float(value)) if "." in value else int(value) for value in values)
        return None if all(_NUMBER.fullmatch(value) for value in values) and _fractions(values) else tuple(values)
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        return None
    if all(isinstance(value, (int, float)) for value in values):
        return tuple(int(value) for value in values) if not _fractions(values) else None
    return tuple(str(value) for value in values)


def _fractions(values: Sequence[Any]) -> bool:
    return any(not float(value).is_integer() for value in values)
