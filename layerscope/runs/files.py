"""Files that are written whole or not at all, and read with one clear line where they are damaged."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors import SafetensorError

from layerscope.errors import LayerscopeError


def aside(path: Path, write: Any) -> None:
    """Write beside the file and rename: a reader sees the whole file or none."""
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(exist_ok=True)  # someone may have deleted it
        part.unlink(missing_ok=True)
        part.touch()
        mode = part.stat().st_mode
        write(part)
        part.chmod(mode)  # a writer with a temporary file of its own leaves it to its maker alone
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
    full = "No space left" in reason or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    mend = "make room" if full else "make it writable"
    reason = "no space left on the disk" if full else reason
    return LayerscopeError(f"{str(path)!r} cannot be written ({reason}): {mend}, then run the same command to go on")


def digest(path: Path) -> str:
    """Return the sha256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a file of a run folder."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LayerscopeError(f"{str(path.parent)!r} is no run folder: it has no {path.name}") from None
    except OSError as error:
        raise LayerscopeError(f"{str(path)!r} cannot be read ({error.strerror}): check its permissions") from error
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise LayerscopeError(
            f"{str(path)!r} is not what layerscope wrote there: start the run again in another folder"
        )
    return found


def write_parquet(path: Path, frames: pd.DataFrame | Iterable[pd.DataFrame]) -> None:
    """Write a table, whole or frame by frame, with a checksum in every page."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    with ExitStack() as stack:
        writer = None
        for frame in [frames] if isinstance(frames, pd.DataFrame) else frames:
            table = pa.Table.from_pandas(frame, preserve_index=False)
            writer = writer or stack.enter_context(ParquetWriter(path, table.schema, write_page_checksum=True))
            writer.write_table(table)
    _give_back()


def read_parquet(path: Path, columns: set[str]) -> pd.DataFrame:
    """Return a table of a run folder, which must have these columns."""
    try:
        found = pd.read_parquet(path, page_checksum_verification=True)
        _give_back()
    except FileNotFoundError:
        raise LayerscopeError(f"{str(path)!r} is missing: start the run again in another folder") from None
    except PermissionError as error:
        raise LayerscopeError(f"{str(path)!r} cannot be read ({error.strerror}): check its permissions") from error
    except Exception as error:  # pyarrow raises many kinds
        raise LayerscopeError(f"{str(path)!r} is damaged: start the run again in another folder") from error
    if not columns <= set(found.columns):
        raise LayerscopeError(
            f"{str(path)!r} is not what layerscope wrote there: start the run again in another folder"
        )
    return found


def _give_back() -> None:
    """Return to the system what arrow held while it wrote or read: several times the table, and kept for ever."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
