import codecs
import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError, count, first_line, listed, unreadable

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = (".parquet", ".pq")
TABLES = (*SEPARATORS, *JSON_LINES, *PARQUET)
KINDS = "give CSV, TSV, JSONL, Parquet or plain text, or a folder or archive (.tar, .zip) of images or sounds"
UNQUOTED = "quotation marks taken as text"
"""Many TSV files quote nothing, and their texts may begin with a quotation mark."""
LOOKED_AT = 65536  # bytes, to see whether a file is text
_CONTROLS = bytes(set(range(32)) - {8, 9, 10, 12, 13, 27})
"""Control characters that no text has."""


def table_suffix(data: Any) -> str:
    """Return the suffix of a table file, lower case and without .gz; empty where the data are no such file."""
    if not isinstance(data, (str, Path)) or not Path(data).expanduser().is_file():
        return ""
    suffix = next((s.lower() for s in reversed(Path(data).suffixes) if s.lower() != ".gz"), "")
    return suffix if suffix in TABLES else ""


def is_a(data: Any, *names: str) -> bool:
    """Return whether data are of a class, by package and name: the package need not be imported for that."""
    return any(
        f"{cls.__module__.partition('.')[0]}.{cls.__name__}" in names for cls in type(data).__mro__
    )


def is_frame(data: Any) -> bool:
    """Return whether data are a pandas frame."""
    return is_a(data, "pandas.DataFrame")


def table_of(data: Any) -> Any | None:
    """Return the table that data are, a pandas frame or the path of a table file, or None where they are none."""
    if is_frame(data):
        return data.reset_index(drop=True).set_axis([str(name) for name in data.columns], axis=1)
    suffix = table_suffix(data)
    return read_frame(Path(data).expanduser(), suffix, []) if suffix else None


def read_frame(path: Path, suffix: str, notes: list[str]) -> Any:
    """Return a table file as a pandas frame; `suffix` is without `.gz`."""
    if suffix in PARQUET:
        return _parquet(path)
    text = read_text(path)
    return (
        _json_lines(text, path, notes)
        if suffix in JSON_LINES
        else _separated(text, path, SEPARATORS[suffix], notes)
    )


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, unpacked where its name ends in `.gz`, with line ends as newlines."""
    with _whole(path):
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix.lower() == ".gz" and data else data
    if not data.strip():
        raise LayerscopeError(f"{path} is empty: give a file with at least one sample")
    _check_start(data[:LOOKED_AT], path)
    return _decoded(data, path)


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text as `read_text` gives it, each with its end, without the whole of it in memory."""
    at = 0
    with _whole(path), gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        start = file.read(LOOKED_AT)
        if not start:
            raise LayerscopeError(f"{path} is empty: give a file with at least one sample")
        _check_start(start, path)
        file.seek(0)
        for line in file:
            yield _decoded(line, path, at)
            at += len(line)


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Within, a file that cannot be read, or is no whole gzip file, is one line."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise LayerscopeError(
            f"{path} is not a complete gzip file ({error}): pack it again"
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


def _check_start(start: bytes, path: Path) -> None:
    """Raise where a file begins as no text in UTF-8 does."""
    # UTF-16 has its mark, or (Latin) a zero in every second byte and hardly any other
    few, many = sorted((start[::2].count(0), start[1::2].count(0)))
    latin = len(start) > 3 and many > 0.2 * len(start) and few < 0.1 * many
    if latin or start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise LayerscopeError(f"{path} is UTF-16 text: save it as UTF-8")
    if len(start) - len(start.translate(None, _CONTROLS)) > 0.1 * len(start):
        raise LayerscopeError(f"{path} is a binary file, not text: {KINDS}")


def _decoded(data: bytes, path: Path, at: int = 0) -> str:
    """Return the text of the bytes from `at` on in a file, with line ends as newlines."""
    try:
        return data.decode("utf-8" if at else "utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        if b"\0" in data:
            raise LayerscopeError(f"{path} is a binary file, not text: {KINDS}") from error
        fault = f"byte {at + error.start:,} is 0x{data[error.start]:02x}"
        raise LayerscopeError(f"{path} is not UTF-8 ({fault}): save it as UTF-8") from error


def _separated(text: str, path: Path, separator: str, notes: list[str]) -> Any:
    separator, note = separator_of(text.split("\n", 1)[0], separator)
    notes += note

    def rows(quoting: int) -> list[list[str]]:
        return list(separated(io.StringIO(text, newline=""), path, separator, quoting))

    try:
        header, *found = rows(csv.QUOTE_MINIMAL)
    except LayerscopeError:
        if separator != "\t":
            raise
        header, *found = rows(csv.QUOTE_NONE)
        notes.append(UNQUOTED)
    if not found:
        raise LayerscopeError(f"{path} has a header but no rows: give at least one text")
    import pandas as pd

    return pd.DataFrame(found, columns=header, dtype=object)


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


def _json_lines(text: str, path: Path, notes: list[str]) -> Any:
    if text.lstrip().startswith("["):
        records = [as_record(record, path, i) for i, record in enumerate(parsed(text, path, "it"))]
    else:
        lines = (
            (number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()
        )
        records = [
            as_record(parsed(line, path, f"line {k}"), path, i) for i, (k, line) in enumerate(lines)
        ]
    if not records:
        raise LayerscopeError(f"{path} has no records: give at least one text")
    whole = [without_surrogates(record) for record in records]
    if halves := [str(i) for i, record in enumerate(records) if whole[i] != record]:
        notes.append(
            f"{count(len(halves), 'row')} held unpaired surrogates, now U+FFFD: rows {listed(halves)}"
        )
    import pandas as pd

    return pd.DataFrame(whole, dtype=object)


def without_surrogates(value: Any) -> Any:
    """Return a text, or the texts in lists and objects, with halves of surrogate pairs as U+FFFD."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    elif isinstance(value, list):
        return [without_surrogates(item) for item in value]
    elif isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    return value


def as_record(record: Any, path: Path, number: int) -> dict[str, Any]:
    """Return what a line of JSON holds as an object: a text is its only member."""
    record = {"text": record} if isinstance(record, str) else record
    if not isinstance(record, dict):
        found = json.dumps(record, ensure_ascii=False)
        raise LayerscopeError(
            f'{path}: record {number} is {found:.40}, not an object: write {{"text": …}} a line'
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


def _parquet(path: Path) -> Any:
    import pyarrow.parquet as pq

    with whole_parquet(path):
        with pq.ParquetFile(path) as file:
            table = file.read()
        table.validate(
            full=True
        )  # texts that are not UTF-8 would break later, when they are looked at
        return table.to_pandas()


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
