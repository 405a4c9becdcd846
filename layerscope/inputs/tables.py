import csv
import gzip
import io
import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError, unreadable
from layerscope.inputs.corpus import count, listed

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = (".parquet", ".pq")


def table_suffix(data: Any) -> str:
    """Return the suffix of a table file, lower case and without .gz; empty where data are no file of one."""
    if not isinstance(data, (str, Path)) or not Path(data).expanduser().is_file():
        return ""
    suffix = next((s.lower() for s in reversed(Path(data).suffixes) if s.lower() != ".gz"), "")
    return suffix if suffix in (*JSON_LINES, *PARQUET, *SEPARATORS) else ""


def is_a(data: Any, *names: str) -> bool:
    """Tell a class by package and name, so that its package need not be imported to ask."""
    return any(f"{cls.__module__.partition('.')[0]}.{cls.__name__}" in names for cls in type(data).__mro__)


def is_frame(data: Any) -> bool:
    """Return whether data are a pandas frame."""
    return is_a(data, "pandas.DataFrame")


def table_of(data: Any) -> Any | None:
    """Return the table that data are, a pandas frame or the path of a table file, or None where they are none."""
    if is_frame(data):
        return data.reset_index(drop=True).set_axis([str(name) for name in data.columns], axis=1)
    suffix = table_suffix(data)
    return read_frame(Path(data).expanduser(), suffix, []) if suffix else None


def read_frame(path: Path, kind: str, notes: list[str]) -> Any:
    """Return a table file as a pandas frame; `kind` is its suffix, without `.gz`."""
    if kind in PARQUET:
        return _parquet(path)
    text = read_text(path)
    return _json_lines(text, path, notes) if kind in JSON_LINES else _separated(text, path, SEPARATORS[kind], notes)


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes, unpacked where its name ends in `.gz`."""
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix.lower() == ".gz" and data else data
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise LayerscopeError(f"{path} is not a whole gzip file ({error}): pack it again") from error
    except OSError as error:
        raise unreadable(path, error) from error
    if not data.strip():
        raise LayerscopeError(f"{path} is empty: give a file with at least one sample")
    return data


def read_text(path: Path) -> str:
    """Return a UTF-8 file's text with line ends as newlines; raises `LayerscopeError` where it is none."""
    data = read_bytes(path)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or _is_utf16(data):
        raise LayerscopeError(f"{path} is UTF-16 text: save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if b"\0" in data or _is_binary(data):
            raise LayerscopeError(f"{path} is a binary file, not text: {KINDS}") from error
        at = f"byte {error.start:,} is 0x{data[error.start]:02x}"
        raise LayerscopeError(f"{path} is not UTF-8 ({at}): save it as UTF-8") from error
    if _is_binary(data):
        raise LayerscopeError(f"{path} is a binary file, not text: {KINDS}")
    return text.replace("\r\n", "\n")


KINDS = "give CSV, TSV, JSONL, Parquet or plain text, or a folder or archive (.tar, .zip) of images or sounds"


def _is_utf16(data: bytes) -> bool:
    """Tell UTF-16 without its mark: every second byte of Latin text is a zero, and hardly any of the others."""
    start = data[: 65536 & ~1]
    zeros = sorted((start[::2].count(0), start[1::2].count(0)))
    return len(start) > 3 and zeros[1] > 0.2 * len(start) and zeros[0] < 0.1 * zeros[1]


def _is_binary(data: bytes) -> bool:
    """Tell whether more than one byte in ten at the start is a control character no text has."""
    start = data[:65536]
    controls = bytes(set(range(32)) - {8, 9, 10, 12, 13, 27})
    return len(start) - len(start.translate(None, controls)) > 0.1 * len(start)


def _separated(text: str, path: Path, separator: str, notes: list[str]) -> Any:
    header = text.split("\n", 1)[0]
    if separator == "," and "," not in header:
        found = [other for other in ";\t" if other in header]
        if found:
            separator = found[0]
            notes.append(f"separator: {'tab' if separator == chr(9) else separator!r} (guessed)")
    try:
        rows = list(_rows(text, path, separator, csv.QUOTE_MINIMAL))
    except LayerscopeError:
        if separator != "\t":
            raise
        # Many TSV files quote nothing, and their texts may begin with a quotation mark.
        rows = list(_rows(text, path, separator, csv.QUOTE_NONE))
        notes.append("quotation marks taken as text")
    if len(rows) < 2:
        raise LayerscopeError(f"{path} has a header but no rows: give at least one text")
    import pandas as pd

    return pd.DataFrame(rows[1:], columns=rows[0], dtype=object)


def _rows(text: str, path: Path, separator: str, quoting: Any) -> Iterator[list[str]]:
    with _unlimited_fields():
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, quoting=quoting, strict=True)
        width = 0
        try:
            for row in reader:
                if not row:
                    continue
                width = width or len(row)
                if len(row) != width:
                    raise LayerscopeError(
                        f"{path}: line {reader.line_num} has {len(row)} fields where the header has {width}: "
                        "quote the texts that hold separators or line ends"
                    )
                yield row
        except csv.Error as error:
            raise LayerscopeError(
                f"{path}: line {reader.line_num} is broken ({error}): close quotes, and double those inside a text"
            ) from error


@contextmanager
def _unlimited_fields() -> Iterator[None]:
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _json_lines(text: str, path: Path, notes: list[str]) -> Any:
    if text.lstrip().startswith("["):
        records = _parsed(text, path, "it")
    else:
        lines = enumerate(text.split("\n"), start=1)
        records = [_parsed(line, path, f"line {number}") for number, line in lines if line.strip()]
    records = [{"text": record} if isinstance(record, str) else record for record in records]
    odd = next((i for i, record in enumerate(records) if not isinstance(record, dict)), None)
    if odd is not None:
        found = json.dumps(records[odd], ensure_ascii=False)
        raise LayerscopeError(f'{path}: record {odd} is {found:.40}, not an object: write {{"text": …}} a line')
    if not records:
        raise LayerscopeError(f"{path} has no records: give at least one text")
    halves = [str(i) for i, record in enumerate(records) if without_surrogates(record) != record]
    if halves:
        records = without_surrogates(records)
        notes.append(f"{count(len(halves), 'row')} held half characters, now U+FFFD: rows {listed(halves)}")
    names = dict.fromkeys(name for record in records for name in record)
    import pandas as pd

    columns = {name: pd.Series([record.get(name) for record in records], dtype=object) for name in names}
    return pd.DataFrame(columns)


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


def _parsed(text: str, path: Path, what: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        at = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else "too deep"
        raise LayerscopeError(f"{path}: {what} is not JSON ({at}): write one object a line") from error


def _parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    _check_parquet(path)
    try:
        table = pq.read_table(path)
        table.validate(full=True)  # texts that are not UTF-8 would break later, when they are looked at
        return table.to_pandas()
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0][:120].rstrip(". ")
        raise LayerscopeError(f"{path} is a damaged Parquet file ({reason}): write it again") from error


def _check_parquet(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(4)
            file.seek(-min(4, path.stat().st_size), 2)
            end = file.read()
    except OSError as error:
        raise unreadable(path, error) from error
    if not start:
        raise LayerscopeError(f"{path} is empty: give a file with at least one sample")
    if start != b"PAR1":
        raise LayerscopeError(f"{path} is not a Parquet file: {KINDS}")
    if end != b"PAR1":
        raise LayerscopeError(f"{path} is not a whole Parquet file (its end is missing): write or copy it again")
