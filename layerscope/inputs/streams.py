"""Data of any size, a chunk of neighbouring samples at a time: what is in memory does not grow with their number.

A list is a stream that ends: what lies in memory, and what can be read only as a whole, is cut into
chunks as well. The formats of tables are those of `rows`, for streams and for corpora alike.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.inputs.columns import (
    Columns,
    choose_columns,
    class_labels,
    frame_corpus,
    missing,
    missing_labels,
    text_corpus,
)
from layerscope.inputs.corpus import Corpus, Labels
from layerscope.inputs.hub import dataset_name, hub_rows, is_dataset, media_of
from layerscope.inputs.media import is_hidden, media_kind
from layerscope.inputs.opening import (
    data_name,
    existing_data,
    is_name,
    lines_corpus,
    open_corpus,
)
from layerscope.inputs.rows import (
    HEAD,
    TABLES,
    Record,
    Rows,
    file_fingerprint,
    file_rows,
    iterable_rows,
)
from layerscope.inputs.samples import hash_of
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
    """Data read chunk by chunk, as often as wanted, but for what an iterator yields.

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
    # what yields the rows from the first one on
    items: Callable[[], Iterable[Any]]
    # what makes a chunk of its number and its rows
    make: Callable[[int, list[Any]], Chunk]

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

    def chunks(
        self, start: int = 0, wanted: Callable[[int], bool] = lambda number: True
    ) -> Iterator[Chunk]:
        """Yield the chunks from a number on; of those that are not `wanted` no sample is made.

        Raises `LayerscopeError` where the data turn out to be broken, after the chunks before that.
        """
        items = iter(self.items())
        number = 0
        while part := list(islice(items, self.rows)):
            if number >= start and wanted(number):
                yield self.make(number, part)
            elif number >= start:
                yield Chunk(number, len(part), read=False)
            number += 1


def open_stream(
    data: Any,
    *,
    labels: Iterable[Any] | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    rows: int = ROWS,
) -> Stream:
    """Return data of any kind as a `Stream` of chunks of `rows` rows each.

    CSV, TSV, JSONL, Parquet and text files (gzip too, but for Parquet), folders of tables of one of
    these kinds, texts of the hub (`hf:name`) or saved by `datasets`, and iterables of texts or of
    dicts, such as a `datasets.IterableDataset`, are read as they are needed. Everything else that
    `open_corpus` takes is opened as it does. Raises `LayerscopeError` for data that cannot be read.

    >>> from layerscope.inputs import open_stream
    >>> stream = open_stream(f"text {i}" for i in range(3000))
    >>> stream.length, [len(chunk.samples) for chunk in stream.chunks()]
    (None, [1024, 1024, 952])
    """
    columns = Columns(text_column, label_column)
    if labels is None:
        if paths := _files(data):
            return _file_stream(data, paths, columns, rows)
        named = _iterable(data, columns)
        if named is not None:
            name, table = named
            digest = hash_of((table.length, table.head))
            return _table_stream(table, name, columns, rows, digest)
    corpus = open_corpus(
        data, labels=labels, text_column=text_column, label_column=label_column
    )
    return corpus_stream(corpus, rows)


def _file_stream(
    data: str | Path, paths: Sequence[Path], columns: Columns, rows: int
) -> Stream:
    """Return the rows of table files, or the lines of a text."""
    name, suffix = data_name(paths[0])
    if suffix not in TABLES:
        columns.refuse(str(data))
        return _text_stream(paths[0], name, rows)
    if len(paths) > 1:
        name = Path(data).resolve().name
    table = replace(file_rows(paths, suffix), where=str(data))
    return _table_stream(table, name, columns, rows, file_fingerprint(paths))


def corpus_stream(corpus: Corpus, rows: int) -> Stream:
    """Return samples that are open already as a stream."""

    def make(number: int, indices: list[int]) -> Chunk:
        part = corpus.take(indices)
        return Chunk(number, len(part), part.samples, part.names, part.labels)

    every = range(len(corpus))
    digest = corpus.fingerprint()
    return Stream(corpus, rows, len(corpus), digest, None, None, lambda: every, make)


def _iterable(data: Any, columns: Columns) -> tuple[str, Rows] | None:
    """Return name and rows of data that come one by one: what has no length, and texts of `datasets`.

    Of other data it is None.
    """
    if is_dataset(data):
        return hub_rows(data, columns)
    is_unread = isinstance(data, Iterable) and not hasattr(data, "__len__")
    if is_a(data, "datasets.Dataset"):  # whose texts lie on the disk
        is_unread = media_of(data.features, Columns()) is None
    if not is_unread:
        return None
    return dataset_name(data, "stream"), iterable_rows(data, "the iterable")


def _files(data: Any) -> list[Path]:
    """Return the files to read by rows: one of a table or of text, or the tables in a folder; else none."""
    if not isinstance(data, (str, Path)) or is_name(data):
        return []
    path = existing_data(data)
    if path.is_file():
        is_read_whole = media_kind(path.name) or path.suffix.lower() == ".npy"
        return [path] * (not is_read_whole)
    if not path.is_dir() or is_dataset(path):
        return []
    tables = []
    suffixes = set()
    for file in sorted(path.rglob("*")):
        if file.is_dir() or is_hidden(file.name):
            continue
        if media_kind(file.name):
            return []
        suffix = data_name(file)[1]
        if suffix in TABLES:
            tables.append(file)
            suffixes.add(suffix)
    return tables * (len(suffixes) == 1)


def _text_stream(path: Path, name: str, rows: int) -> Stream:
    def read() -> Iterator[tuple[int, str]]:
        return enumerate(read_lines(path), 1)

    def make(number: int, lines: list[tuple[int, str]]) -> Chunk:
        samples = []
        names = []
        for i, line in lines:
            if line.strip():
                samples.append(line.rstrip("\n"))
                names.append(str(i))
        return Chunk(number, len(lines), samples, names)

    head = lines_corpus("".join(islice(read_lines(path), HEAD)), name)
    digest = file_fingerprint([path])
    return Stream(head, rows, None, digest, None, None, read, make)


def _table_stream(
    table: Rows, name: str, columns: Columns, rows: int, fingerprint: str
) -> Stream:
    import pandas as pd

    frame = pd.DataFrame(table.head, dtype=object)
    head = frame_corpus(frame, name, columns, table.where, table.notes)
    # what was left out of the first rows is no note on the whole
    kept = [note for note in head.notes if "left out" not in note]
    head = replace(head, notes=tuple(kept))
    chosen, _ = choose_columns([*map(str, frame.columns)], columns, table.where)
    names = [str(chosen.text)]
    label = None
    if head.labels is not None:
        label = chosen.label
        names.append(str(label))
    has_ids = ID in frame and ID not in names and frame[ID].is_unique
    if has_ids:
        names.append(ID)
    where = f"{table.where}: column {chosen.text!r}"

    def make(number: int, records: list[Record]) -> Chunk:
        first = number * rows
        ids: Sequence[Any] = range(first, first + len(records))
        cells = [[record.get(name) for record in records] for name in names]
        if has_ids:
            ids = cells.pop()
        return _texts(number, cells, ids, f"{where} from row {first:,} on")

    digest = hash_of((fingerprint, names))
    read = partial(table.read, names)
    return Stream(head, rows, table.length, digest, chosen.text, label, read, make)


def _texts(
    number: int, columns: Sequence[list[Any]], ids: Sequence[Any], where: str
) -> Chunk:
    """Return a chunk of the rows that have a text and, where the data are labelled, a label."""
    texts, *labels = columns
    kept = ~missing(texts)
    for cells in labels:
        kept &= ~missing_labels(cells)
    rows = np.flatnonzero(kept).tolist()
    if not rows:
        return Chunk(number, len(texts))
    samples = text_corpus([texts[row] for row in rows], "chunk", where).samples
    names = [str(ids[row]) for row in rows]
    classes = None
    for cells in labels:
        of_kept = [cells[row] for row in rows]
        classes = class_labels(of_kept) or tuple(map(str, of_kept))
    return Chunk(number, len(texts), samples, names, classes)
