"""Tables read in parts of some rows each, of which no more than one is in memory: files, several files, iterables.

Each format is read in one place. `parts` yields the cells of some columns, part after part, and
skips those that nobody wants as cheaply as the format can; `frame` gives the first rows, by which
columns are guessed, or all of them.
"""

import csv
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, Protocol

from layerscope.core.errors import LayerscopeError, count, first_line, listed, unreadable
from layerscope.inputs.text_files import read_lines, without_surrogates

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = (".parquet", ".pq")
TABLES = (*SEPARATORS, *JSON_LINES, *PARQUET)
UNQUOTED = "quotation marks taken as text"
"""Many TSV files quote nothing, and their texts may begin with a quotation mark."""
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

    def frame(self, most: int | None = None) -> Any:
        """Return the first rows as a pandas frame, by default all."""

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

    def frame(self, most: int | None = None) -> Any:
        """Return the first rows as a pandas frame; TSV with bare quotation marks is read as it stands from now on."""
        import pandas as pd

        try:
            cells = list(islice(self._rows(), most))
        except LayerscopeError:
            if self.separator != "\t" or self.quoting == csv.QUOTE_NONE:
                raise
            self.quoting, self.header = csv.QUOTE_NONE, []
            self.notes.append(UNQUOTED)
            return self.frame(most)
        if not cells:
            where = f"{self.paths[0]} has a header but no rows"
            raise LayerscopeError(f"{where}: give at least one text")
        return pd.DataFrame(cells, columns=self.header, dtype=object)

    def parts(self, names: Sequence[str], rows: int, wanted: Wanted) -> Iterator[tuple[int, Part]]:
        """Yield part after part; those that are not wanted are parsed too, as a text may hold line ends."""
        at = [self.header.index(name) for name in names]
        return in_parts(
            self._rows(), rows, wanted, lambda part: [[row[i] for i in at] for row in part]
        )


class JsonRows:
    """Files with a JSON object a line, or with one array of objects, which is parsed as a whole."""

    length = None

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths, self.notes = paths, list[str]()

    def _records(self) -> Iterator[Callable[[], dict[str, Any]]]:
        """Yield each record as a function that parses it: what is not wanted is not parsed."""
        row = 0
        for path in self.paths:
            filled = ((i, line) for i, line in enumerate(read_lines(path), 1) if line.strip())
            number, first = next(filled, (0, ""))
            if first.lstrip().startswith("["):
                whole = parsed("".join([first, *(line for _, line in filled)]), path, "it")
                records = (partial(as_record, record, path) for record in whole)
            else:
                lines = chain([(number, first)], filled)
                records = (partial(_line_record, line, path, i) for i, line in lines)
            for record in records:
                yield partial(record, row)
                row += 1

    def frame(self, most: int | None = None) -> Any:
        """Return the first rows as a pandas frame, and note in which of all rows texts were mended."""
        import pandas as pd

        records = [record() for record in islice(self._records(), most)]
        if not records:
            raise LayerscopeError(f"{self.paths[0]} has no records: give at least one text")
        whole = [without_surrogates(record) for record in records]
        halves = [str(i) for i, record in enumerate(records) if whole[i] != record]
        if halves and most is None:
            rows = count(len(halves), "row")
            self.notes.append(f"{rows} held unpaired surrogates, now U+FFFD: rows {listed(halves)}")
        return pd.DataFrame(whole, dtype=object)

    def parts(self, names: Sequence[str], rows: int, wanted: Wanted) -> Iterator[tuple[int, Part]]:
        """Yield part after part; only wanted ones are parsed."""
        return in_parts(
            self._records(),
            rows,
            wanted,
            lambda part: [_cells(without_surrogates(record()), names) for record in part],
        )


def _line_record(line: str, path: Path, number: int, row: int) -> dict[str, Any]:
    return as_record(parsed(line.rstrip("\n"), path, f"line {number}"), path, row)


class ParquetRows:
    """Parquet files, read by row groups."""

    def __init__(self, paths: Sequence[Path]) -> None:
        import pyarrow.parquet as pq

        self.paths, self.notes, self.length = paths, list[str](), 0
        for path in paths:
            with whole_parquet(path):
                self.length += pq.read_metadata(path).num_rows

    def frame(self, most: int | None = None) -> Any:
        """Return the first rows as a pandas frame."""
        import pandas as pd
        import pyarrow.parquet as pq

        frames = []
        for path in self.paths if most is None else self.paths[:1]:
            with whole_parquet(path), pq.ParquetFile(path) as file:
                table = file.read() if most is None else next(file.iter_batches(most), None)
                if table is not None:
                    table.validate(full=True)  # texts that are not UTF-8 would break later
                    frames.append(table.to_pandas())
                    self._refuse_lost(path, frames[0], file)
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    def parts(self, names: Sequence[str], rows: int, wanted: Wanted) -> Iterator[tuple[int, Part]]:
        """Yield part after part; row groups without a wanted one are not read."""
        return in_parts(self._rows(names, rows, wanted), rows, wanted, lambda part: part)

    def _refuse_lost(self, path: Path, names: Iterable[str], file: Any) -> None:
        lost = [name for name in names if name not in file.schema_arrow.names]
        if lost:
            raise LayerscopeError(
                f"{path} has no column {lost[0]!r}, which {self.paths[0]} has: leave it out"
            )

    def _rows(self, names: Sequence[str], rows: int, wanted: Wanted) -> Iterator[Any]:
        import pyarrow.parquet as pq

        at = 0
        for path in self.paths:
            with (
                whole_parquet(path),
                pq.ParquetFile(path, pre_buffer=False, buffer_size=PARQUET_BUFFER) as file,
            ):
                self._refuse_lost(path, names, file)
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
        # it does not begin again: what was looked at is kept for the first reading
        self.once = iter(data) is data

    def frame(self, most: int | None = None) -> Any:
        """Return the rows that were looked at as a pandas frame, or all."""
        import pandas as pd

        return pd.DataFrame(self.first if most else list(self._records()), dtype=object)

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
                **{
                    column: class_name(record[column], names)
                    for column, names in self.classes.items()
                },
            }
            number += 1


def class_name(cell: Any, names: Sequence[str]) -> str | None:
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
    summed = hashlib.sha256()
    for path in paths:
        size = path.stat().st_size
        with path.open("rb") as file:
            summed.update(size.to_bytes(8, "little") + file.read(ENDS))
            file.seek(max(0, size - ENDS))
            summed.update(file.read(ENDS))
    return summed.hexdigest()


def separator_of(header: str, separator: str) -> tuple[str, list[str]]:
    """Return what separates the columns of a header, and a note where that is not what the file's name says."""
    other = next((sign for sign in ";\t" if sign in header), None)
    if other and separator == "," and "," not in header:
        return other, [f"separator: {'tab' if other == chr(9) else other!r} (guessed)"]
    return separator, []


def separated(
    lines: Iterable[str], path: Path, separator: str, quoting: Any
) -> Iterator[list[str]]:
    """Yield the header and rows of as many fields; unlike with pandas, none is filled up or mended."""
    csv.field_size_limit(2**31 - 1)  # texts may be longer than the module's 131,072 characters
    reader = csv.reader(lines, delimiter=separator, quoting=quoting, strict=True)
    fields = 0
    try:
        for row in filter(None, reader):
            fields = fields or len(row)
            if len(row) != fields:
                raise LayerscopeError(
                    f"{path}: line {reader.line_num} has {len(row)} fields where the header has {fields}: "
                    "quote the texts that hold separators or line ends"
                )
            yield row
    except csv.Error as error:
        raise LayerscopeError(
            f"{path}: line {reader.line_num} is broken ({error}): close quotes, and double those inside a text"
        ) from error


def as_record(record: Any, path: Path, number: int) -> dict[str, Any]:
    """Return what a line of JSON holds as an object: a text is its only member."""
    record = {"text": record} if isinstance(record, str) else record
    if not isinstance(record, dict):
        shown = json.dumps(record, ensure_ascii=False)
        raise LayerscopeError(
            f'{path}: record {number} is {shown:.40}, not an object: write {{"text": …}} a line'
        )
    return record


def parsed(text: str, path: Path, what: str) -> Any:
    """Return what a text of JSON holds; `what` names it in the line on one that is broken."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        at = (
            f"{error.msg}, column {error.colno}"
            if isinstance(error, json.JSONDecodeError)
            else "too deep"
        )
        raise LayerscopeError(
            f"{path}: {what} is not JSON ({at}): write one object per line"
        ) from error


@contextmanager
def whole_parquet(path: Path) -> Iterator[None]:
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
