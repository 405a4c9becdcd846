"""One job at a time writes to a folder: a lock on this machine, and where machines share it the owner's mark."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from filelock import FileLock, Timeout

from layerscope.core import files, processes
from layerscope.core.errors import LayerscopeError

LOCK, OWNER = ".lock", ".owner"
BEAT, STALE = 10.0, 60.0
"""Seconds after which an owner renews its mark, and after which one that is not renewed counts no more."""
SETTLED = 0.2
"""Seconds after which of two that mark a folder at once the later one stands."""
UNLOCKABLE = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a folder for this job alone; another one is refused, and a refused start leaves nothing.

    Locks of a folder that machines share may be unknown there, or hold on one machine alone:
    against others stands the owner's mark, which it renews as long as it lives.
    """
    made = files.absent(path)
    # for a moment, as a start that was refused may take the file away between our opening and
    # locking it
    lock = FileLock(path / LOCK, timeout=0.2)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise _held("another process is writing to", path, "wait for it") from None
    except OSError as error:
        if error.errno not in UNLOCKABLE:
            raise LayerscopeError(
                f"run folder {str(path)!r} cannot be written ({error.strerror}): choose another with `out`"
            ) from error
    try:
        with _marked(path, lock.is_locked):
            yield
    finally:
        started = (path / "run.json").is_file()
        if not started:
            with suppress(OSError):  # Windows deletes no open file: there the release does
                (path / LOCK).unlink()
        lock.release()
        if not started:
            files.drop_empty([path / "shards", path / "tables", *made])


def refuse_held(path: Path | None) -> None:
    """Raise where another job holds a folder, for one process that is yet to import what takes long."""
    if path is not None and (path / LOCK).exists() and processes.launched() == 1:
        with locked(path):
            pass


@contextmanager
def _marked(path: Path, is_locked: bool) -> Iterator[None]:
    """Mark a folder as this job's; a mark of this machine does not count where its lock `is_locked` by us."""
    host, mark = socket.gethostname(), path / OWNER
    mine = f"{os.getpid()} on {host}"
    new = path / f"{OWNER}-{host}-{os.getpid()}"
    try:
        new.write_text(mine, encoding="utf-8")
    except OSError as error:
        with suppress(OSError):  # a full disk takes the file and not what is in it
            new.unlink()
        if not is_locked:
            raise files.unwritable(new, error) from error
        yield
        return
    with suppress(OSError):  # there is none
        other = mark.read_text(encoding="utf-8")
        # both by the clock of the file server
        left = STALE - (new.stat().st_mtime - mark.stat().st_mtime)
        if left > 0 and not (is_locked and other.endswith(f" on {host}")):
            new.unlink()
            mend = f"wait for it, or, if it was killed, {left:.0f} seconds"
            raise _held(f"process {other} is writing to", path, mend)
    new.replace(mark)
    ended = Event()
    if not is_locked and not ended.wait(SETTLED) and mark.read_text(encoding="utf-8") != mine:
        raise _held("another process is writing to", path, "wait for it")

    def renew() -> None:
        while not ended.wait(BEAT):
            with suppress(OSError):
                os.utime(mark)

    Thread(target=renew, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        with suppress(OSError):
            mark.unlink()


def _held(what: str, path: Path, mend: str) -> LayerscopeError:
    return LayerscopeError(f"{what} {str(path)!r}: {mend}, or choose another folder with `out`")
