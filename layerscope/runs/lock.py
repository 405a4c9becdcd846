"""A run folder is held by one process at a time, and its disk has room for the states."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import absent, drop_empty

LOCK = ".lock"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a run folder for this process alone; a second process is refused, and a refused start leaves nothing."""
    made = absent(path)
    # for a moment, as a start that was refused may take the file away between our opening and locking it
    lock = FileLock(path / LOCK, timeout=0.2)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise LayerscopeError(
            f"another process is writing to {str(path)!r}: wait for it, or choose another folder with `out`"
        ) from None
    except OSError as error:
        raise LayerscopeError(
            f"run folder {str(path)!r} cannot be written ({error.strerror}): choose another with `out`"
        ) from error
    try:
        yield
    finally:
        started = (path / "run.json").is_file()
        if not started:
            with suppress(OSError):  # Windows deletes no open file: there the release does
                (path / LOCK).unlink()
        lock.release()
        if not started:
            drop_empty([path / "shards", path / "tables", *made])


FEWER = "take fewer `samples`, `store_dtype='float16'`, or another `out`"


def need_room(path: Path, size: int, mend: str = FEWER) -> None:
    """Refuse states of `size` bytes that do not fit on the disk of their folder."""
    there = next(p for p in (path, *path.absolute().parents) if p.exists())
    free = shutil.disk_usage(there).free
    if size > free:
        raise LayerscopeError(f"the states take {amount(size)} and {str(path)!r} has {amount(free)} free: {mend}")


def amount(size: int) -> str:
    """Return bytes as a person reads them."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
