"""The lines of UTF-8 files, packed by gzip or not, with one clear line for files that hold something else."""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError, unreadable

KINDS = "give CSV, TSV, JSONL, Parquet or plain text, or a folder or archive (.tar, .zip) of images or sounds"
LOOKED_AT = 65536  # bytes, to see whether a file is text
_CONTROLS = bytes(set(range(32)) - {8, 9, 10, 12, 13, 27})
"""Control characters that no text has."""


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, each with a newline as its end, without the whole of it in memory.

    Raises `LayerscopeError` for a file that is empty or holds no such text.
    """
    at = 0
    with _whole(path), gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        start = file.read(LOOKED_AT)
        if len(start) < LOOKED_AT and not start.strip():
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
