"""Tables as rows that are read again and again, no more than one part of them in memory: files and iterables.

A row is its cells by column. The first rows are looked at to choose the columns; then the table is
read from its beginning, with those columns alone where the format allows. An iterator does not
begin again: of it, what was looked at is kept and comes first.
"""

import csv
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from layerscope.core import LayerscopeError, first_line, unreadable
from layerscope.inputs.text_files import read_lines, without_surrogates

SEPARATED = (".csv", ".tsv", ".tab")
JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = (".parquet", ".pq")
TABLES = (*SEPARATED, *JSON_LINES, *PARQUET)
SEPARATORS = ",;\t"
HEAD = 1000  # rows, by which the columns are chosen
BATCH = 1024  # rows of Parquet that are unpacked at once
ENDS = 65536  # bytes at either end of a file, by which its contents are known
PARQUET_BUFFER = 1 << 20  # bytes read ahead of a column
Record = Mapping[str, Any]
Records = Iterator[Record]


@dataclass
class Rows:
    """Rows of a table, each with its cells by column.

    `read` yields them from the first one on, with these columns at least, or all where None is
    given; what an iterator yields only once. `length` is their number, where it is known
    before they are read.

    >>> rows = iterable_rows([{"text": "good", "label": 1}, {"text": "bad", "label": 0}], "the list")
    >>> [row["text"] for row in rows.read(["text"])]
    ['good', 'bad']
    """

    where: str
    read: Callable[[Sequence[str] | None], Records]
    notes: list[str] = field(default_factory=list)
    length: int | None = None
    head: list[Record] = field(default_factory=list)
    """The first rows."""

    def __post_init__(self) -> None:
        self.head = self.head or list(islice(self.read(None), HEAD))

    def frame(self) -> Any:
        """Return all rows as a pandas frame of objects."""
        import pandas as pd

        return pd.DataFrame(list(self.read(None)), dtype=object)


def file_rows(paths: Sequence[Path], suffix: str) -> Rows:
    """Return the rows of table files of one kind, by their suffix without `.gz`."""
    where = str(paths[0])
    if suffix in PARQUET:
        length = sum(map(_parquet_length, paths))
        return Rows(where, partial(_parquet, paths), length=length)
    if suffix in JSON_LINES:
        return Rows(where, lambda names: chain.from_iterable(map(_json, paths)))
    separator = "\t"
    if suffix == ".csv":
        first = next(filter(str.strip, read_lines(paths[0])), "")
        separator = next(filter(first.__contains__, SEPARATORS), ",")
    return Rows(where, partial(_separated, paths, separator))


def _separated(
    paths: Sequence[Path], separator: str, names: Sequence[str] | None
) -> Records:
    """Yield the rows of CSV or TSV, each with as many fields as the header has names."""
    # texts may be longer than the module's 131,072 characters
    csv.field_size_limit(2**31 - 1)
    for path in paths:
        rows = csv.reader(read_lines(path), delimiter=separator, strict=True)
        try:
            filled = filter(None, rows)
            header = next(filled, [])
            for name in header:
                if header.count(name) > 1:
                    raise LayerscopeError(
                        f"{path} has two columns named {name!r}: rename one"
                    )
            for row in filled:
                if len(row) != len(header):
                    raise LayerscopeError(
                        f"{path}: line {rows.line_num} has {len(row)} fields where the header has {len(header)}: "
                        "quote the texts that hold separators or line ends"
                    )
                yield dict(zip(header, row, strict=True))
        except csv.Error as error:
            raise LayerscopeError(
                f"{path}: line {rows.line_num} is broken ({error}): close quotes, and double those inside a text"
            ) from error


def _json(path: Path) -> Records:
    """Yield the objects of a file, one a line or all in one array, which is parsed as a whole."""
    lines = enumerate(read_lines(path), 1)
    filled = ((number, line) for number, line in lines if line.strip())
    start, first = next(filled, (1, "{}"))  # blanks other than ASCII's
    if first.lstrip().startswith("["):
        rest = [line for _, line in filled]
        whole = _parsed("".join([first, *rest]), str(path))
        for number, record in enumerate(whole, 1):
            yield as_record(record, f"{path}: record {number}")
        return
    for number, line in chain([(start, first)], filled):
        where = f"{path}: line {number}"
        record = as_record(_parsed(line, where), where)
        yield {without_surrogates(name): cell for name, cell in record.items()}


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LayerscopeError(
            f"{where} is not JSON ({first_line(error)}): write one object per line"
        ) from error


def as_record(record: Any, where: str) -> Record:
    """Return a row as its cells by column; a text is the only one.

    >>> as_record("good", "row 0"), as_record({"text": "good", "label": 1}, "row 0")
    ({'text': 'good'}, {'text': 'good', 'label': 1})
    """
    if isinstance(record, str):
        return {"text": record}
    if not isinstance(record, Mapping):
        raise LayerscopeError(
            f"{where} is {record!r:.40}, of type {type(record).__name__}: give texts, or objects of cells"
        )
    return record


def _parquet_length(path: Path) -> int:
    import pyarrow.parquet as pq

    with _whole_parquet(path):
        return int(pq.read_metadata(path).num_rows)


def _parquet(paths: Sequence[Path], names: Sequence[str] | None) -> Records:
    import pyarrow.parquet as pq

    for path in paths:
        with (
            _whole_parquet(path),
            pq.ParquetFile(path, pre_buffer=False, buffer_size=PARQUET_BUFFER) as file,
        ):
            for batch in file.iter_batches(BATCH, columns=names, use_threads=False):
                batch.validate(full=True)  # texts that are not UTF-8 would break later
                yield from batch.to_pylist()


@contextmanager
def _whole_parquet(path: Path) -> Iterator[None]:
    """Within, a Parquet file that cannot be read, or not whole, is one line."""
    import pyarrow as pa

    try:
        yield
    except PermissionError as error:
        raise unreadable(path, error) from error
    except (pa.ArrowException, OSError) as error:
        reason = first_line(error).rstrip(". ")
        raise LayerscopeError(
            f"{path} is not a complete Parquet file ({reason}): write or copy it again"
        ) from error


def iterable_rows(data: Any, where: str) -> Rows:
    """Return the rows that an iterable yields: texts, or objects such as those of a `datasets.IterableDataset`."""
    classes = {}
    for column, kind in (getattr(data, "features", None) or {}).items():
        if hasattr(kind, "names"):
            classes[column] = kind.names

    def records(names: Sequence[str] | None = None) -> Records:
        remaining = iter(data)
        number = 0
        while True:
            try:
                record = next(remaining)
            except StopIteration:
                return
            except Exception as error:  # whatever someone else's code raises
                why = f"{type(error).__name__}: {first_line(error)}"
                raise LayerscopeError(
                    f"{where} failed at row {number:,} ({why}): fix it and run this again"
                ) from error
            row = dict(as_record(record, f"row {number:,} of {where}"))
            for column, class_names in classes.items():
                row[column] = class_name(row[column], class_names)
            yield row
            number += 1

    length = getattr(data, "num_rows", None)
    if iter(data) is not data:
        return Rows(where, records, length=length)
    # it does not begin again: what was looked at is kept
    every = records()
    head = list(islice(every, HEAD))
    return Rows(where, lambda names: chain(head, every), head=head)


def class_name(cell: Any, names: Sequence[str]) -> str | None:
    """Return the name of a class; -1 hides the labels of a test set.

    >>> class_name(1, ["bad", "good"]), class_name(-1, ["bad", "good"])
    ('good', None)
    """
    if cell is None or cell < 0:
        return None
    return str(names[cell])


def file_fingerprint(paths: Sequence[Path]) -> str:
    """Return the sha256 (hex) of the sizes of files and of what they begin and end with, whatever their names."""
    summed = hashlib.sha256()
    for path in paths:
        size = path.stat().st_size
        with path.open("rb") as file:
            summed.update(size.to_bytes(8, "little") + file.read(ENDS))
            file.seek(max(0, size - ENDS))
            summed.update(file.read(ENDS))
    return summed.hexdigest()
