"""Files that are written whole or not at all, and read with one clear line where they are damaged.

A file is written beside its place and renamed, so that a reader never sees half of one. Checksums
show whether a file has changed since: objects carry one of their members, tables one of every page,
and for other files the sha256, or the faster sum of pages, is kept elsewhere.
"""

import errno
import hashlib
import json
import mmap
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors import SafetensorError

from layerscope.core.checked_json import text_of, unchanged
from layerscope.core.errors import LayerscopeError, near, refuse_dangling, unreadable
from layerscope.core.hub import on_this_machine

PAGE = 4096
"""Bytes that have one sum in a checksum by pages."""


def aside(path: Path, write: Any, writer: str = "") -> None:
    """Write beside the file and rename: a reader sees the whole file or none.

    Several processes that may write one file at a time each give a `writer`, a name of their own.
    """
    part = path.with_name(f".{path.name}{writer}.part")
    try:
        path.parent.mkdir(exist_ok=True)  # someone may have deleted it
        part.unlink(missing_ok=True)
        part.touch()
        mode = part.stat().st_mode
        write(part)
        # a writer with a temporary file of its own leaves it to its maker alone
        part.chmod(mode)
        with part.open("rb+") as file:  # Windows flushes only what is open for writing
            os.fsync(file.fileno())
        part.replace(path)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            part.unlink()
        raise unwritable(path, error) from error


def unwritable(path: Path, error: Exception) -> LayerscopeError:
    """Return the line on a file that cannot be written, and how to go on."""
    reason = getattr(error, "strerror", None) or str(error)
    mend = "make it writable"
    number = getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT) or "No space left" in reason:
        mend = "make room"
        reason = "no space left on the disk"
    return LayerscopeError(
        f"{str(path)!r} cannot be written ({reason}): {mend}, then run the same command to resume"
    )


def foreign(path: Path) -> LayerscopeError:
    """Return the line on a file that is whole, and holds something else than was written."""
    return LayerscopeError(
        f"{str(path)!r} is not the file that layerscope wrote: start the run again in another folder"
    )


def digest(path: Path) -> str:
    """Return the sha256 (hex) of a file.

    >>> from layerscope.core.files import digest
    >>> path = Path("one.txt")
    >>> path.write_text("one"), digest(path)[:12]
    (3, '7692c3ad3540')
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def page_sums(path: Path) -> str:
    """Return a checksum (hex) of a file that takes a twentieth of the time of its sha256: the sha256 of page sums.

    The 64-bit words of every page of 4 KiB are added up. Pages that are overwritten, lost or moved
    change it; it is no seal against somebody who wants the same sums.

    >>> from layerscope.core.files import page_sums
    >>> (one, two) = Path("one.bin"), Path("two.bin")
    >>> one.write_bytes(bytes(5000)), two.write_bytes(bytes(4999) + b"1")
    (5000, 5000)
    >>> page_sums(one) == page_sums(two)
    False
    """
    if path.stat().st_size == 0:  # which cannot be mapped
        return hashlib.sha256().hexdigest()
    with path.open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    whole = len(content) // PAGE * PAGE
    pages = np.frombuffer(content, "<u8", whole // 8).reshape(-1, PAGE // 8)
    summed = hashlib.sha256(pages.sum(axis=1, dtype="<u8"))
    summed.update(content[whole:])
    return summed.hexdigest()


def write_json(path: Path, facts: Mapping[str, Any], writer: str = "") -> None:
    """Write an object with a checksum of its members, whole or not at all; `writer` as in `aside`."""
    aside(path, lambda part: part.write_text(text_of(facts), encoding="utf-8"), writer)


def json_object(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file, including its checksum.

    It is None if the file does not hold a complete object.
    """
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError):
        return None
    return facts if isinstance(facts, dict) else None


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a file of a run folder, which must fit its checksum where it has one."""
    try:
        facts = json_object(path)
    except FileNotFoundError:
        raise LayerscopeError(
            f"{str(path.parent)!r} is not a run folder: it has no {path.name}"
        ) from None
    if facts is None or not unchanged(facts):
        raise foreign(path)
    return facts


def write_parquet(path: Path, frames: pd.DataFrame | Iterable[pd.DataFrame]) -> None:
    """Write a table, whole or frame by frame, with a checksum in every page."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    if isinstance(frames, pd.DataFrame):
        frames = [frames]
    tables = (pa.Table.from_pandas(frame, preserve_index=False) for frame in frames)
    for first in tables:
        with ParquetWriter(path, first.schema, write_page_checksum=True) as writer:
            writer.write_table(first)
            for table in tables:
                writer.write_table(table)
    _give_back()


def read_parquet(
    path: Path, columns: set[str], kinds: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Return a table of a run folder, which must have these columns, and in those of `kinds` values of that dtype."""
    try:
        frame = pd.read_parquet(path, page_checksum_verification=True)
        _give_back()
    except FileNotFoundError:
        raise LayerscopeError(
            f"{str(path)!r} is missing: start the run again in another folder"
        ) from None
    except PermissionError as error:
        raise unreadable(path, error) from error
    except Exception as error:  # pyarrow raises many kinds
        raise LayerscopeError(
            f"{str(path)!r} is damaged: start the run again in another folder"
        ) from error
    if not columns <= {*frame.columns}:
        raise foreign(path)
    for name, kind in (kinds or {}).items():
        if name in frame and not _holds(frame[name], kind):
            raise foreign(path)
    return frame


def _holds(column: pd.Series, kind: str) -> bool:
    """Return whether a column holds numbers, or where `kind` is object texts."""
    if kind == "object":
        return pd.api.types.infer_dtype(column, skipna=True) in ("string", "empty")
    try:
        column.astype(kind)
    except (TypeError, ValueError, AttributeError):
        return False
    return True


def _give_back() -> None:
    """Return to the system what arrow held while it wrote or read: several times the table, and kept for ever."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


def existing(path: str | Path, what: str, alternatives: Collection[str] = ()) -> Path:
    """Return the path of a file or folder that is there; raises `LayerscopeError` with the near name where not.

    `alternatives` are names that may be given instead of a path.
    """
    there = Path(path)
    try:
        there = on_this_machine(path)
        if there.is_dir():
            next(there.iterdir(), None)
        elif there.is_file():  # a pipe may be opened only once
            there.open("rb").close()
        if there.exists():
            return there
        refuse_dangling(there)
        names = [*alternatives]
        if there.parent.is_dir():
            names[:0] = [other.name for other in there.parent.iterdir()]
    except PermissionError as error:
        raise unreadable(there, error) from error
    except (OSError, RuntimeError) as error:  # RuntimeError: ~ of nobody
        mend = "give texts as a list" if alternatives else "give a file or a folder"
        raise LayerscopeError(
            f"{what} {str(path)[:40]!r}… is not a path: {mend}"
        ) from error
    hint = near(there.name, names) or ": check the path"
    also = ""
    if alternatives:
        also = f" (without a path: {', '.join(alternatives)})"
    raise LayerscopeError(f"{what} {str(path)!r} does not exist{hint}{also}")
