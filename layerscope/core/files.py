"""Files that are written whole or not at all, and read with one clear line where they are damaged."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors import SafetensorError

from layerscope.core.errors import LayerscopeError, near, refuse_dangling, unreadable


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


def foreign(path: Path) -> LayerscopeError:
    """Return the line on a file that is whole, and holds something else than was written."""
    return LayerscopeError(f"{str(path)!r} is not what layerscope wrote there: start the run again in another folder")


def digest(path: Path) -> str:
    """Return the sha256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


CHECKSUM = "checksum"


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Write an object with a checksum of its members, whole or not at all."""
    text = json.dumps({**facts, CHECKSUM: _checksum(facts)}, indent=2)  # escaped: half a character can be written
    aside(path, lambda part: part.write_text(text, encoding="utf-8"))


def _checksum(facts: Mapping[str, Any]) -> str:
    """Return the sha256 (hex) of an object, whatever its order and spacing."""
    return hashlib.sha256(json.dumps(json.loads(json.dumps(facts)), sort_keys=True).encode()).hexdigest()


def unchanged(facts: dict[str, Any]) -> bool:
    """Take the checksum out of an object that was read, and return whether it fits the rest; without one, it does."""
    return facts.pop(CHECKSUM, None) in (None, _checksum(facts))


def json_object(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file, its checksum among the members; None where there is no whole object."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a file of a run folder, which must fit its checksum where it has one."""
    try:
        found = json_object(path)
    except FileNotFoundError:
        raise LayerscopeError(f"{str(path.parent)!r} is not a run folder: it has no {path.name}") from None
    if found is None or not unchanged(found):
        raise foreign(path)
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


def read_parquet(path: Path, columns: set[str], kinds: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return a table of a run folder, which must have these columns, and in those of `kinds` values of that dtype."""
    try:
        found = pd.read_parquet(path, page_checksum_verification=True)
        _give_back()
    except FileNotFoundError:
        raise LayerscopeError(f"{str(path)!r} is missing: start the run again in another folder") from None
    except PermissionError as error:
        raise unreadable(path, error) from error
    except Exception as error:  # pyarrow raises many kinds
        raise LayerscopeError(f"{str(path)!r} is damaged: start the run again in another folder") from error
    if not columns <= set(found.columns) or not _fits(found, kinds or {}):
        raise foreign(path)
    return found


def _fits(frame: pd.DataFrame, kinds: Mapping[str, str]) -> bool:
    """Return whether columns hold numbers, or where the dtype is object texts."""
    known = {name: kind for name, kind in kinds.items() if name in frame}
    try:
        frame.astype(known)
    except (TypeError, ValueError, AttributeError):
        return False
    texts = [frame[name] for name, kind in known.items() if kind == "object"]
    return all(pd.api.types.infer_dtype(column, skipna=True) in ("string", "empty") for column in texts)


def _give_back() -> None:
    """Return to the system what arrow held while it wrote or read: several times the table, and kept for ever."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


def existing(path: str | Path, what: str) -> Path:
    """Return the path of a file or folder that is there; raises `LayerscopeError` with the near name where not."""
    found = Path(path)
    try:
        found = found.expanduser()
        if found.exists():
            return found
        refuse_dangling(found)
        siblings = [other.name for other in found.parent.iterdir()] if found.parent.is_dir() else []
    except LayerscopeError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: ~ of nobody; ValueError: a zero byte
        raise LayerscopeError(f"{what} {str(path)[:80]!r} is not a path: give a file or a folder") from error
    raise LayerscopeError(f"{what} {str(path)!r} does not exist{near(found.name, siblings) or ': check the path'}")
