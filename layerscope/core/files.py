"""Files and folders that are written whole or not at all, and read with one clear line where they are damaged.

A folder that a verb writes is never one in which someone else left something.
"""

import errno
import hashlib
import json
import mmap
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from filelock import BaseFileLock, FileLock, Timeout
from safetensors import SafetensorError, safe_open

from layerscope.core.checked_json import text_of, unchanged
from layerscope.core.errors import LayerscopeError, near, refuse_dangling, unreadable
from layerscope.core.hub import on_this_machine

if TYPE_CHECKING:
    from torch import Tensor

PAGE = 4096
"""Bytes that have one sum in a checksum by pages."""
SEAL = "sha256"
"""Of tensors, in the header of their file."""
HELD = ".layerscope-writes"
"""The file that a process holds locked in a folder it is writing; no other folder is taken for one of ours."""


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
    full = "No space left" in reason or getattr(error, "errno", None) in (
        errno.ENOSPC,
        errno.EDQUOT,
    )
    mend = "make room" if full else "make it writable"
    reason = "no space left on the disk" if full else reason
    return LayerscopeError(
        f"{str(path)!r} cannot be written ({reason}): {mend}, then run the same command to resume"
    )


def foreign(path: Path) -> LayerscopeError:
    """Return the line on a file that is whole, and holds something else than was written."""
    return LayerscopeError(
        f"{str(path)!r} is not the file that layerscope wrote: start the run again in another folder"
    )


def digest(path: Path) -> str:
    """Return the sha256 (hex) of a file."""
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


def save_sealed(tensors: Mapping[str, "Tensor"], path: Path) -> None:
    """Write tensors with their checksum."""
    from safetensors.torch import save_file

    ready = {key: tensors[key].contiguous() for key in sorted(tensors)}
    save_file(ready, path, {SEAL: _sum(ready.items())})


def is_intact(path: Path) -> bool:
    """Return whether a file that can be read holds what was written; one without a checksum counts as whole."""
    with safe_open(path, framework="pt") as file:
        seal = (file.metadata() or {}).get(SEAL)
        return seal is None or seal == _sum(
            (key, file.get_tensor(key)) for key in sorted(file.keys())
        )


def _sum(tensors: Iterable[tuple[str, "Tensor"]]) -> str:
    import torch

    sums = hashlib.sha256()
    for key, tensor in tensors:
        sums.update(key.encode())
        sums.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sums.hexdigest()


def write_json(path: Path, facts: Mapping[str, Any], writer: str = "") -> None:
    """Write an object with a checksum of its members, whole or not at all; `writer` as in `aside`."""
    aside(path, lambda part: part.write_text(text_of(facts), encoding="utf-8"), writer)


def json_object(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file, including its checksum; None if the file does not hold a complete object."""
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

    with ExitStack() as stack:
        writer = None
        for frame in [frames] if isinstance(frames, pd.DataFrame) else frames:
            table = pa.Table.from_pandas(frame, preserve_index=False)
            writer = writer or stack.enter_context(
                ParquetWriter(path, table.schema, write_page_checksum=True)
            )
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
    held = (
        _holds(frame[name], kind)
        for name, kind in (kinds or {}).items()
        if name in frame
    )
    if not (columns <= set(frame.columns) and all(held)):
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
        beside = (
            [other.name for other in there.parent.iterdir()]
            if there.parent.is_dir()
            else []
        )
    except LayerscopeError:
        raise
    except PermissionError as error:
        raise unreadable(there, error) from error
    except (OSError, RuntimeError) as error:  # RuntimeError: ~ of nobody
        mend = "give texts as a list" if alternatives else "give a file or a folder"
        raise LayerscopeError(
            f"{what} {str(path)[:40]!r}… is not a path: {mend}"
        ) from error
    hint = near(there.name, [*beside, *alternatives]) or ": check the path"
    also = f" (without a path: {', '.join(alternatives)})" if alternatives else ""
    raise LayerscopeError(f"{what} {str(path)!r} does not exist{hint}{also}")


def own_folder(
    out: str | Path, what: str = "", mark: str = "", option: str = "out"
) -> Path:
    """Return a folder to write to, `~` spelt out: new, empty, or one with an earlier `what`, known by its file `mark`.

    Raises `LayerscopeError` for a file, and for a folder that holds anything else, which `option`
    named.
    """
    folder = Path(out).expanduser()
    fault = ""
    try:
        if folder.exists() and not folder.is_dir():
            fault = "is a file"
        elif folder.is_dir() and any(folder.iterdir()):
            ours = mark and any((folder / name).is_file() for name in (mark, HELD))
            fault = (
                ""
                if ours
                else f"exists and {f'holds no {what}' if what else 'is not empty'}"
            )
    except OSError as error:
        fault = f"cannot be read ({error.strerror})"
    if fault:
        raise LayerscopeError(f"`{option}={str(folder)!r}` {fault}: name a new folder")
    return folder


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Within, files are written into a folder of `own_folder`'s, which is known as ours after a kill too."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / HELD).touch()
    except OSError as error:
        raise LayerscopeError(
            f"{str(folder)!r} cannot be made ({error.strerror}): name another folder"
        ) from error
    yield
    (folder / HELD).unlink(missing_ok=True)


@contextmanager
def folder_aside(folder: Path) -> Iterator[Path]:
    """Yield a hidden folder beside another, whose name it gets where all goes well; else it is gone.

    Folders that killed processes left beside the same one are taken away first.
    """
    made = absent(folder.absolute().parent)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _drop_abandoned(folder)
        aside = Path(
            tempfile.mkdtemp(
                prefix=f".{folder.name}.", suffix=".part", dir=folder.parent
            )
        )
        lock = FileLock(aside / HELD, timeout=0)
        lock.acquire()
    except OSError as error:
        raise _unwritable(folder, error, "name another folder") from error
    try:
        yield aside
        _release(lock)
        aside.chmod(0o755)  # a temporary folder is its maker's alone
        if folder.is_dir():
            # it was empty before the long job; what came into it since is not ours to delete
            folder.rmdir()
        aside.rename(folder)
    except OSError as error:
        raise _unwritable(folder, error, "make room or name another folder") from error
    finally:
        if aside.exists():
            with suppress(
                OSError
            ):  # a second Ctrl-C may stop this: then the next command takes the rest away
                (aside / HELD).touch()
            lock.release()
            _drop(aside)
            drop_empty(made)


def absent(folder: Path) -> list[Path]:
    """Return the folders that making one would make; none where that cannot be looked up."""
    try:
        return [above for above in (folder, *folder.parents) if not above.exists()]
    except OSError:
        return []


def drop_empty(folders: Iterable[Path]) -> None:
    """Take folders away, as far as nothing lies in them."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def _unwritable(folder: Path, error: OSError, mend: str) -> LayerscopeError:
    return LayerscopeError(
        f"`out={str(folder)!r}` cannot be written ({error.strerror or error}): {mend}"
    )


def _release(lock: BaseFileLock) -> None:
    """Take the lock's file away before anyone else can hold it, where that can be."""
    if not lock.is_locked:
        return
    # Windows deletes no open file: there it is deleted when it is free
    with suppress(OSError):
        Path(lock.lock_file).unlink()
    lock.release()
    Path(lock.lock_file).unlink(missing_ok=True)


def _drop_abandoned(folder: Path) -> None:
    """Delete the hidden folders beside another whose process was killed: nobody holds their lock any more."""
    for aside in folder.parent.glob(f".{escape(folder.name)}.*.part"):
        if (aside / HELD).is_file():  # else it is not ours
            _drop(aside)


def _drop(aside: Path) -> None:
    """Delete a hidden folder that nobody holds, what tells that it is ours last."""
    with (
        suppress(OSError, Timeout),
        FileLock(aside / HELD, timeout=0),
    ):  # Timeout: still being written
        for inside in aside.iterdir():
            if inside.name != HELD:
                shutil.rmtree(inside) if inside.is_dir() else inside.unlink()
        with suppress(OSError):  # Windows deletes no open file
            (aside / HELD).unlink()
    drop_empty([aside])
