"""Folders that a verb writes: never over what someone else left there, and whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from layerscope.core.errors import LayerscopeError

HELD = ".layerscope-writes"
"""The file that a process holds locked in a folder it is writing; no other folder is taken for one of ours."""


def own_folder(out: str | Path, what: str = "", mark: str = "") -> Path:
    """Return a folder to write to, `~` spelt out: new, empty, or one with an earlier `what`, known by its file `mark`.

    Raises `LayerscopeError` for a file, and for a folder that holds anything else.
    """
    place = Path(out).expanduser()
    try:
        if place.exists() and not place.is_dir():
            raise LayerscopeError(f"--out {str(place)!r} is a file: name a new folder")
        held = place.is_dir() and any(place.iterdir())
        if held and not (mark and ((place / mark).is_file() or (place / HELD).is_file())):
            why = f"holds no {what}" if what else "is not empty"
            raise LayerscopeError(f"--out {str(place)!r} exists and {why}: name a new folder")
    except OSError as error:
        raise LayerscopeError(f"--out {str(place)!r} cannot be read ({error.strerror}): name a new folder") from error
    return place


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Within, files are written into a folder of `own_folder`'s, which is known as ours after a kill too."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / HELD).touch()
    except OSError as error:
        raise LayerscopeError(f"{str(place)!r} cannot be made ({error.strerror}): name another folder") from error
    yield
    (place / HELD).unlink(missing_ok=True)


@contextmanager
def folder_aside(place: Path) -> Iterator[Path]:
    """Yield a hidden folder beside a place, which gets its name where all goes well and is gone where not.

    Folders that killed processes left beside the same place are taken away first.
    """
    made = [above for above in place.absolute().parents if not above.exists()]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _drop_abandoned(place)
        aside = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent))
        lock = FileLock(aside / HELD, timeout=0)
        lock.acquire()
    except OSError as error:
        raise LayerscopeError(
            f"--out {str(place)!r} cannot be written ({error.strerror}): name another folder"
        ) from error
    try:
        yield aside
        _release(lock)
        aside.chmod(0o755)  # a temporary folder is its maker's alone
        if place.is_dir():
            place.rmdir()  # it was empty before the long job; what came into it since is not ours to delete
        aside.rename(place)
    except OSError as error:
        raise LayerscopeError(
            f"--out {str(place)!r} cannot be written ({error.strerror or error}): make room or name another folder"
        ) from error
    finally:
        _release(lock)
        if aside.exists():
            shutil.rmtree(aside, ignore_errors=True)
            for above in made:
                if above.is_dir() and not any(above.iterdir()):
                    above.rmdir()


def _release(lock: BaseFileLock) -> None:
    """Take the lock's file away before anyone else can hold it, where that can be."""
    if not lock.is_locked:
        return
    with suppress(OSError):  # Windows deletes no open file: there it is deleted when it is free
        Path(lock.lock_file).unlink()
    lock.release()
    Path(lock.lock_file).unlink(missing_ok=True)


def _drop_abandoned(place: Path) -> None:
    """Delete the hidden folders beside a place whose process was killed: nobody holds their lock any more."""
    for aside in place.parent.glob(f".{escape(place.name)}.*.part"):
        if not (aside / HELD).is_file():  # not ours
            continue
        with suppress(OSError, Timeout), FileLock(aside / HELD, timeout=0):  # Timeout: still being written
            for inside in aside.iterdir():
                if inside.name != HELD:
                    shutil.rmtree(inside) if inside.is_dir() else inside.unlink()
            with suppress(OSError):  # Windows deletes no open file
                (aside / HELD).unlink()
        with suppress(OSError):
            aside.rmdir()
