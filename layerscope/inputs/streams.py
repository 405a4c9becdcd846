"""Data of any size, a chunk of neighbouring samples at a time: what is in memory does not grow with their number.

A list is a stream that ends: what lies in memory, and what can be read only as a whole, is cut into
chunks as well. The formats of tables are those of `rows`, for streams and for corpora alike.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError, listed
from layerscope.inputs.archives import is_archive
from layerscope.inputs.built_in import BUILT_IN
from layerscope.inputs.columns import (
    Columns,
    choose_columns,
    class_labels,
    missing,
    missing_labels,
    text_corpus,
)
from layerscope.inputs.corpus import Corpus, Labels
from layerscope.inputs.hub import hub_rows, is_dataset
from layerscope.inputs.media import is_hidden, media_kind
from layerscope.inputs.opening import data_name, existing_data, lines_corpus, open_corpus
from layerscope.inputs.rows import (
    HEAD,
    TABLES,
    IterableRows,
    Rows,
    Wanted,
    file_fingerprint,
    file_rows,
    in_parts,
)
from layerscope.inputs.tables import is_a
from layerscope.inputs.text_files import read_lines

ROWS = 1024
"""Rows of a chunk."""
ID = "id"
"""The column that names a table's samples, where the first rows differ in it; else each is named by its row."""


@dataclass(frozen=True)
class Chunk:
    """Neighbouring samples: what is left of `rows` rows of the data without empty texts and unlabelled rows.

    `labels` of one chunk may be numbers and those of another texts. A chunk that was not wanted is
    not `read`: it has its number and its rows alone.

    >>> from layerscope.inputs import open_stream
    >>> next(open_stream("reviews.csv").chunks()).samples[:2]
    ['the food was good', 'the food was great']
    """

    number: int
    rows: int
    samples: Sequence[Any] = ()
    names: Sequence[str] = ()
    labels: Labels | None = None
    read: bool = True


@dataclass(frozen=True)
class Stream:
    """Data read chunk by chunk, as often as wanted, or `once`: what an iterator yields.

    `head` holds the first samples, up to 1,000 rows, or all data that lie in memory anyway: their
    modality, the notes on the columns, whether they are running text. `length` is the number of
    rows, None where it is not known before they are read. `fingerprint` is equal for equal data at
    any path; of files it is made of their sizes and ends.

    >>> from layerscope.inputs import open_stream
    >>> stream = open_stream("reviews.csv", rows=10)
    >>> [(chunk.number, len(chunk.samples), chunk.names[0]) for chunk in stream.chunks()]
    [(0, 10, '0'), (1, 10, '10'), (2, 4, '20')]
    >>> [chunk.number for chunk in stream.chunks(wanted=lambda number: number % 2 == 1) if chunk.read]
    [1]
    """

    head: Corpus
    rows: int
    length: int | None
    fingerprint: str
    text_column: str | None
    label_column: str | None
    read: Callable[[Wanted], Iterator[Chunk]]
    once: bool = False

    @property
    def name(self) -> str:
        """What the data are called."""
        return self.head.name

    @property
    def modality(self) -> str:
        """What the samples are: text, image, audio or tensor."""
        return self.head.modality

    @property
    def notes(self) -> tuple[str, ...]:
        """What was guessed, one line each."""
        return self.head.notes

    def chunks(self, start: int = 0, wanted: Wanted = lambda number: True) -> Iterator[Chunk]:
        """Yield the chunks from a number on; those that are not `wanted` are skipped as cheaply as the format can.

        Raises `LayerscopeError` where the data turn out to be broken, after the chunks before that.
        """
        chunks = self.read(lambda number: number >= start and wanted(number))
        return (chunk for chunk in chunks if chunk.number >= start)


def open_stream(
    data: Any,
    *,
    labels: Iterable[Any] | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    rows: int = ROWS,
) -> Stream:
    """Return data of any kind as a `Stream` of chunks of `rows` rows each.

    CSV, TSV, JSONL, Parquet and text files (gzip too, but for Parquet), folders of such tables,
    texts of the hub (`hf:name`) or saved by `datasets`, and iterables of texts or of dicts, such as
    a `datasets.IterableDataset`, are read as they are needed; their columns are chosen by the first
    1,000 rows. Everything else that `open_corpus` takes is opened as it does. Raises
    `LayerscopeError` for data that cannot be read.

    >>> from layerscope.inputs import open_stream
    >>> stream = open_stream(f"text {i}" for i in range(3000))
    >>> stream.length, [len(chunk.samples) for chunk in stream.chunks()]
    (None, [1024, 1024, 952])
    """
    columns = Columns(text_column, label_column)
    paths = _files(data) if labels is None and isinstance(data, (str, Path)) else []
    if paths:
        name, suffix = data_name(paths[0])
        where = str(data)
        name = name if len(paths) == 1 else Path(data).resolve().name
        if suffix not in TABLES:
            columns.refuse(where)
            return _text_stream(paths[0], name, rows)
        table = file_rows(paths, suffix)
        return _table_stream(table, name, columns, where, rows, file_fingerprint(paths))
    if labels is None and (named := _iterable(data, columns)) is not None:
        name, each = named
        stream = _table_stream(
            each, name, columns, each.where, rows, _hash((each.length, each.first))
        )
        return replace(stream, once=each.once)
    corpus = open_corpus(data, labels=labels, text_column=text_column, label_column=label_column)
    return corpus_stream(corpus, rows)


def _hash(value: Any) -> str:
    return hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()


def corpus_stream(corpus: Corpus, rows: int = ROWS) -> Stream:
    """Return samples that are open already as a stream."""

    def read(wanted: Wanted) -> Iterator[Chunk]:
        for number, first in enumerate(range(0, len(corpus), rows)):
            here = range(first, min(first + rows, len(corpus)))
            if wanted(number):
                part = corpus.take(here)
                yield Chunk(number, len(here), part.samples, part.names, part.labels)
            else:
                yield Chunk(number, len(here), read=False)

    return Stream(corpus, rows, len(corpus), corpus.fingerprint(), None, None, read)


def _iterable(data: Any, columns: Columns) -> tuple[str, IterableRows] | None:
    """Return name and rows of data that come one by one, texts of `datasets` among them; None of others."""
    if is_dataset(data):
        return hub_rows(data, columns)
    name = str(getattr(getattr(data, "info", None), "dataset_name", None) or "stream")
    return (name, IterableRows(data, "the iterable")) if _is_iterable(data) else None


def _files(data: str | Path) -> list[Path]:
    """Return the files to read by rows: one of a table or of text, or all tables in a folder; else none."""
    if isinstance(data, str) and (data in BUILT_IN or data.startswith("hf:")):
        return []
    path = existing_data(data)
    if not path.is_dir():
        is_read_whole = is_archive(path.name) or media_kind(path.name) or _suffix(path) == ".npy"
        return [path] if path.is_file() and not is_read_whole else []
    inside = sorted(file for file in path.rglob("*") if file.is_file() and not is_hidden(file.name))
    if is_dataset(path) or any(media_kind(file.name) for file in inside):
        return []
    tables = [file for file in inside if _suffix(file) in TABLES]
    kinds = Counter(map(_suffix, tables))
    if len(kinds) > 1:
        held = listed([f"{n:,} {kind}" for kind, n in kinds.items()])
        raise LayerscopeError(
            f"{path} holds tables of {len(kinds)} kinds ({held}), and a folder is read as one data set where all "
            "are of one: give one of its files, or move those of a kind to a folder of their own"
        )
    return tables


def _is_iterable(data: Any) -> bool:
    """Return whether data come one by one: what has no length, and rows of texts that `datasets` keeps on disk."""
    if is_a(data, "datasets.Dataset"):
        return not any(
            type(feature).__name__ in ("Image", "Audio") for feature in data.features.values()
        )
    return (
        isinstance(data, Iterable)
        and not hasattr(data, "__len__")
        and not isinstance(data, (str, Path))
    )


def _suffix(path: Path) -> str:
    return data_name(path)[1]


def _text_stream(path: Path, name: str, rows: int) -> Stream:
    def read(wanted: Wanted) -> Iterator[Chunk]:
        parts = in_parts(read_lines(path), rows, wanted, lambda part: part)
        for number, (n, part) in enumerate(parts):
            lines = enumerate(part or (), number * rows + 1)
            filled = [(str(i), str(line).rstrip("\n")) for i, line in lines if str(line).strip()]
            names, samples = [name for name, _ in filled], [line for _, line in filled]
            yield Chunk(number, n, samples, names, read=part is not None)

    head = lines_corpus("".join(_until(read_lines(path), HEAD)), name)
    return Stream(head, rows, None, file_fingerprint([path]), None, None, read)


def _until(lines: Iterator[str], enough: int) -> Iterator[str]:
    """Yield lines up to the one with which `enough` of them are not blank."""
    for line in lines:
        yield line
        enough -= bool(line.strip())
        if not enough:
            return


def _table_stream(
    table: Rows, name: str, columns: Columns, where: str, rows: int, fingerprint: str
) -> Stream:
    frame = table.frame(HEAD)
    if len(frame) == 0:
        raise LayerscopeError(f"{where} has no rows: give at least one text")
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    chosen, guessed = choose_columns(frame, columns, where)
    labels = None if chosen.label is None else frame[chosen.label].tolist()
    notes = [*table.notes, *guessed]
    head = text_corpus(frame[chosen.text].tolist(), name, where, labels, chosen, notes)
    # what was left out of the first rows is no note on the whole
    kept = [note for note in head.notes if note in notes or note.startswith("no labels")]
    head = replace(head, notes=tuple(kept))
    label = None if head.labels is None else chosen.label
    has_ids = _names_rows(frame, chosen)
    names = [str(chosen.text)]
    if label is not None:
        names.append(label)
    if has_ids:
        names.append(ID)

    def read(wanted: Wanted) -> Iterator[Chunk]:
        texts = f"{where}: column {chosen.text!r}"
        for number, (n, cells) in enumerate(table.parts(names, rows, wanted)):
            if cells is None:
                yield Chunk(number, n, read=False)
                continue
            ids = [str(number * rows + i) for i in range(n)]
            if has_ids:
                ids = [str(row[-1]) for row in cells]
                cells = [row[:-1] for row in cells]
            yield _texts(number, cells, ids, texts, number * rows)

    return Stream(head, rows, table.length, _hash((fingerprint, names)), chosen.text, label, read)


def _names_rows(frame: Any, columns: Columns) -> bool:
    """Return whether a frame has a column of names, none missing and each there once."""
    if ID not in frame.columns or ID in (columns.text, columns.label):
        return False
    return not missing(frame[ID].tolist()).any() and bool(frame[ID].is_unique)


def _texts(
    number: int, cells: list[Sequence[Any]], ids: Sequence[str], where: str, first: int
) -> Chunk:
    """Return a chunk of the rows that have a text and, where the data are labelled, a label."""
    texts, *columns = map(list, zip(*cells, strict=True))
    labels = columns[0] if columns else None
    kept = ~missing(texts)
    if labels is not None:
        kept &= ~missing_labels(labels)
    rows = np.flatnonzero(kept).tolist()
    if not rows:
        return Chunk(number, len(texts))
    filled = [text if is_kept else None for text, is_kept in zip(texts, kept, strict=True)]
    called = [f"{first + row:,}" for row in range(len(texts))]
    samples = text_corpus(filled, "chunk", f"{where} from row {first:,} on", called=called).samples
    names, classes = [ids[row] for row in rows], None
    if labels is not None:
        labels = [labels[row] for row in rows]
        classes = class_labels(labels) or tuple(map(str, labels))
    return Chunk(number, len(texts), samples, names, classes)
