"""The lines of UTF-8 files, packed by gzip or not, with one clear line for files that hold something else."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from layerscope.core import LayerscopeError, unreadable

KINDS = "give CSV, TSV, JSONL, Parquet or plain text in UTF-8, or a folder of images or sounds (unpacked)"
LOOKED_AT = 65536  # bytes, to see whether a file is text


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, each with a newline as its end, without the whole of it in memory.

    Raises `LayerscopeError` for a file that is empty or holds no such text.
    """
    try:
        with (
            gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file
        ):
            start = file.read(LOOKED_AT)
            if not start.strip():
                raise LayerscopeError(
                    f"{path} is empty: give a file with at least one sample"
                )
            if start.count(0) > 0.1 * len(start):  # UTF-16 has as many, too
                raise LayerscopeError(f"{path} is no text in UTF-8: {KINDS}")
            file.seek(0)
            at = 0
            for line in file:
                yield line.decode("utf-8" if at else "utf-8-sig").replace("\r\n", "\n")
                at += len(line)
    except UnicodeDecodeError as error:
        fault = f"byte {at + error.start:,} is 0x{error.object[error.start]:02x}"
        raise LayerscopeError(
            f"{path} is no text in UTF-8 ({fault}): {KINDS}"
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise LayerscopeError(
            f"{path} is not a complete gzip file ({error}): pack it again"
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


def without_surrogates(text: str) -> str:
    """Return a text with halves of surrogate pairs, which no tokenizer reads, as U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
