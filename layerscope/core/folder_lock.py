"""One job at a time writes to a folder."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from layerscope.core import processes
from layerscope.core.errors import LayerscopeError
from layerscope.core.folders import absent, drop_empty

LOCK = ".lock"
UNLOCKABLE = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""What a file system says that knows no locks: there two jobs are not kept apart."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a folder for this job alone; another one is refused, and a refused start leaves nothing."""
    made = absent(path)
    # for a moment, as a start that was refused may take the file away between our opening and
    # locking it
    lock = FileLock(path / LOCK, timeout=0.2)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise LayerscopeError(
            f"another process is writing to {str(path)!r}: wait for it, or choose another folder with `out`"
        ) from None
    except OSError as error:
        if error.errno not in UNLOCKABLE:
            raise LayerscopeError(
                f"run folder {str(path)!r} cannot be written ({error.strerror}): choose another with `out`"
            ) from error
    try:
        yield
    finally:
        started = (path / "run.json").is_file()
        if not started:
            # Windows deletes no open file: there the release does
            with suppress(OSError):
                (path / LOCK).unlink()
        lock.release()
        if not started:
            drop_empty([path / "shards", path / "tables", *made])


def refuse_held(path: Path | None) -> None:
    """Raise where another job holds a folder, for one process that is yet to import what takes long."""
    if path is not None and (path / LOCK).exists() and processes.launched() == 1:
        with locked(path):
            pass
