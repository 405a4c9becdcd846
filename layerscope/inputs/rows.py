"""Tables read in parts of some rows each, of which no more than one is in memory: files, several files, iterables."""

import csv
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, Protocol

from layerscope.core.errors import LayerscopeError, first_line
from layerscope.inputs.tables import (
    JSON_LINES,
    PARQUET,
    SEPARATORS,
    UNQUOTED,
    as_record,
    parsed,
    read_lines,
    separated,
    separator_of,
    whole_parquet,
)

HEAD = 1000  # rows, to guess the columns
ENDS = 65536  # bytes at either end of a file, by which its contents are known
PARQUET_BUFFER = 1 << 20  # bytes read ahead of a column
Part = list[Sequence[Any]] | None
"""The cells of some rows, or None where they are not wanted."""
Wanted = Callable[[int], bool]


class Rows(Protocol):
    """Rows of a table that are read again and again from the first one on."""

    notes: list[str]

    @property
    def length(self) -> int | None:
        """Number of rows, where it is known before they are read."""

    def head(self) -> Any:
        """Return the first 1,000 rows as a pandas frame."""

    def parts(self, names: Sequence[str], rows: int, wanted: Wanted) -> Iterator[tuple[int, Part]]:
        """Yield how many rows part after part has, `rows` in all but the last, with the cells of these columns."""


def in_parts(
    items: Iterable[Any], rows: int, wanted: Wanted, take: Callable[[list[Any]], Part]
) -> Iterator[tuple[int, Part]]:
    """Yield the items in parts of `rows`, and what `take` makes of each part whose number is wanted."""
    remaining, number = iter(items), 0
    while part := list(islice(remaining, rows)):
        yield len(part), take(part) if wanted(number) else None
        number += 1


class SeparatedRows:
    """CSV or TSV files with one header."""

    length = None

    def __init__(self, paths: Sequence[Path], suffix: str) -> None:
        first = next((line for line in read_lines(paths[0]) if line.strip()), "")
        self.separator, self.notes = separator_of(first, SEPARATORS[suffix])
        self.paths, self.quoting = paths, csv.QUOTE_MINIMAL
        self.header: list[str] = []
        try:
            self.head()
        except LayerscopeError:
            if self.separator != "\t":
                raise
            self.quoting, self.header = csv.QUOTE_NONE, []
            self.notes.append(UNQUOTED)

    def _rows(self) -> Iterator[list[str]]:
        for path in self.paths:
            rows = separated(read_lines(path), path, self.separator, self.quoting)
            header = next(rows, [])
            self.header = self.header or header
            if header != self.header:
                raise LayerscopeError(
                    f"{path} has other columns than {self.paths[0]}: give files with one header"
                )
            yield from rows

    def head(self) -> Any:
        """Return the first rows as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(list(islice(self._rows(), HEAD)), columns=self.header, dtype=object)

    def parts(self, names: Sequence[str], rows: int, wanted: Wanted) -> Iterator[tuple[int, Part]]:
        """Yield part after part; those that are not wanted are parsed too, as a text may hold line ends."""
        at = [self.header.index(name) for name in names]
        return in_parts(
            self._rows(), rows, wanted, lambda part: [[row[i] for i in at] for row in part]
        )


class JsonRows:
    """Files with a JSON object a line."""

    length = None

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths, self.notes = paths, list[str]()

    def _lines(self) -> Iterator[tuple[int, Path, int, str]]:
        lines = (
            (path, number, line)
            for path in self.paths
            for number, line in enumerate(read_lines(path), 1)
        )
        return ((i, *line) for i, line in enumerate(line for line in lines if line[2].strip()))

    def head(self) -> Any:
        """Return the first rows as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(list(map(self._record, islice(self._lines(), HEAD))), dtype=object)

    def parts(self, names: Sequence[str], rows: int, wanted: Wanted) -> Iterator[tuple[int, Part]]:
        """Yield part after part; only wanted ones are parsed."""
        return in_parts(
            self._lines(),
            rows,
            wanted,
            lambda part: [_cells(self._record(line), names) for line in part],
        )

    @staticmethod
    def _record(line: tuple[int, Path, int, str]) -> dict[str, Any]:
        row, path, number, text = line
        return as_record(parsed(text, path, f"line {number}"), path, row)


class ParquetRows:
    """Parquet files, read by row groups."""

    def __init__(self, paths: Sequence[Path]) -> None:
        import pyarrow.parquet as pq

        self.paths, self.notes, self.length = paths, list[str](), 0
        for path in paths:
            with whole_parquet(path):
                self.length += pq.read_metadata(path).num_rows

    def head(self) -> Any:
        """Return the first rows as a pandas frame."""
        import pandas as pd
        import pyarrow.parquet as pq

        with whole_parquet(self.paths[0]), pq.ParquetFile(self.paths[0]) as file:
            batch = next(file.iter_batches(HEAD), None)
            return pd.DataFrame() if batch is None else batch.to_pandas()

    def parts(self, names: Sequence[str], rows: int, wanted: Wanted) -> Iterator[tuple[int, Part]]:
        """Yield part after part; row groups without a wanted one are not read."""
        return in_parts(self._rows(names, rows, wanted), rows, wanted, lambda part: part)

    def _rows(self, names: Sequence[str], rows: int, wanted: Wanted) -> Iterator[Any]:
        import pyarrow.parquet as pq

        at = 0
        for path in self.paths:
            with (
                whole_parquet(path),
                pq.ParquetFile(path, pre_buffer=False, buffer_size=PARQUET_BUFFER) as file,
            ):
                if lost := [name for name in names if name not in file.schema_arrow.names]:
                    raise LayerscopeError(
                        f"{path} has no column {lost[0]!r}, which {self.paths[0]} has: leave it out"
                    )
                for group in range(file.num_row_groups):
                    end = at + file.metadata.row_group(group).num_rows
                    if any(map(wanted, range(at // rows, -(-end // rows)))):
                        for batch in file.iter_batches(
                            rows, [group], list(names), use_threads=False
                        ):
                            batch.validate(full=True)
                            yield from zip(
                                *(batch.column(name).to_pylist() for name in names), strict=True
                            )
                    else:
                        yield from repeat(None, end - at)
                    at = end


@dataclass(frozen=True)
class ArrowFiles:
    """The rows of files in Arrow's format of streams, as `datasets` saves them, one batch in memory at a time."""

    paths: Sequence[Path]
    features: Mapping[str, Any]
    num_rows: int

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        import pyarrow as pa

        for path in self.paths:
            with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
                for batch in reader:
                    yield from batch.to_pylist()


class IterableRows:
    """What an iterable yields: texts, or objects such as rows of a `datasets.IterableDataset`."""

    def __init__(self, data: Iterable[Any], where: str) -> None:
        self.data, self.where, self.notes = data, where, list[str]()
        self.length: int | None = getattr(data, "num_rows", None)
        features = (getattr(data, "features", None) or {}).items()
        self.classes = {column: kind.names for column, kind in features if hasattr(kind, "names")}
        self.first = list(islice(self._records(), HEAD))
        self.once = (
            iter(data) is data
        )  # it does not begin again: what was looked at is kept for the first reading

    def head(self) -> Any:
        """Return the first rows as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(self.first, dtype=object)

    def parts(self, names: Sequence[str], rows: int, wanted: Wanted) -> Iterator[tuple[int, Part]]:
        """Yield part after part; raises `LayerscopeError` where the iterable raises, with what it says."""
        first, self.first = (self.first, []) if self.once else ([], self.first)
        records = chain(first, self._records(len(first)))
        return in_parts(
            records, rows, wanted, lambda part: [_cells(record, names) for record in part]
        )

    def _records(self, number: int = 0) -> Iterator[Mapping[str, Any]]:
        remaining = iter(self.data)
        while True:
            try:
                record = next(remaining)
            except StopIteration:
                return
            except Exception as error:  # whatever someone else's code raises
                why = f"{type(error).__name__}: {first_line(error)}"
                raise LayerscopeError(
                    f"{self.where} failed at row {number:,} ({why}): fix it and run this again"
                ) from error
            record = {"text": record} if isinstance(record, str) else record
            if not isinstance(record, Mapping):
                kind = type(record).__name__
                raise LayerscopeError(
                    f"row {number:,} of {self.where} is of type {kind}: yield texts, or dicts of cells"
                )
            yield {
                **record,
                **{column: _class(record[column], names) for column, names in self.classes.items()},
            }
            number += 1


def _class(cell: Any, names: Sequence[str]) -> str | None:
    """Return the name of a class; -1 hides the labels of a test set."""
    return None if cell is None or cell < 0 else names[cell]


def _cells(record: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    return [record.get(name) for name in names]


def file_rows(paths: Sequence[Path], suffix: str) -> Rows:
    """Return the rows of table files of one kind, by their suffix without `.gz`."""
    if suffix in PARQUET:
        return ParquetRows(paths)
    return JsonRows(paths) if suffix in JSON_LINES else SeparatedRows(paths, suffix)


def file_fingerprint(paths: Sequence[Path]) -> str:
    """Return the sha256 (hex) of the sizes of files and of what they begin and end with, whatever their names."""
    found = hashlib.sha256()
    for path in paths:
        size = path.stat().st_size
        with path.open("rb") as file:
            found.update(size.to_bytes(8, "little") + file.read(ENDS))
            file.seek(max(0, size - ENDS))
            found.update(file.read(ENDS))
    return found.hexdigest()
