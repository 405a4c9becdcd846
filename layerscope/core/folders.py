"""Folders that a verb writes: whole or not at all, and never one in which someone else left something.

A folder to write to is new, empty, or one with an earlier result of the same kind, which its own
file tells. While files are written into it, or into the hidden folder that is to take its place, a
process holds a file of a known name there: after a kill the next command knows what is ours, and
whether somebody is still at work.
"""

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from filelock import FileLock, Timeout

from layerscope.core.errors import LayerscopeError

HELD = ".layerscope-writes"
"""The file that a process holds locked in a folder it is writing; no other folder is taken for one of ours."""


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
            is_ours = mark and any((folder / name).is_file() for name in (mark, HELD))
            if not is_ours:
                fault = (
                    f"exists and holds no {what}" if what else "exists and is not empty"
                )
    except OSError as error:
        fault = f"cannot be read ({error.strerror})"
    if fault:
        raise LayerscopeError(f"`{option}={str(folder)!r}` {fault}: name a new folder")
    return folder


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Within, files are written into a folder of `own_folder`'s, which is known as ours after a kill too.

    Raises `LayerscopeError` where the folder cannot be made.
    """
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
        prefix = f".{folder.name}."
        parent = folder.parent
        aside = Path(tempfile.mkdtemp(prefix=prefix, suffix=".part", dir=parent))
        lock = FileLock(aside / HELD, timeout=0)
        lock.acquire()
    except OSError as error:
        raise _unwritable(folder, error, "name another folder") from error
    try:
        yield aside
        # away before anyone else can hold it; Windows deletes it only when it is free
        with suppress(OSError):
            (aside / HELD).unlink()
        lock.release()
        (aside / HELD).unlink(missing_ok=True)
        aside.chmod(0o755)  # a temporary folder is its maker's alone
        if folder.is_dir():
            # it was empty before the long job; what came into it since is not ours to delete
            folder.rmdir()
        aside.rename(folder)
    except OSError as error:
        raise _unwritable(folder, error, "make room or name another folder") from error
    finally:
        if aside.exists():
            # a second Ctrl-C may stop this: then the next command takes the rest away
            with suppress(OSError):
                (aside / HELD).touch()
            lock.release()
            _drop(aside)
            drop_empty(made)


def absent(folder: Path) -> list[Path]:
    """Return the folders that making one would make.

    There are none where that cannot be looked up.
    """
    try:
        return [above for above in (folder, *folder.parents) if not above.exists()]
    except OSError:
        return []


def drop_empty(folders: Iterable[Path]) -> None:
    """Take folders away, as far as nothing lies in them; they come with the innermost first."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def _unwritable(folder: Path, error: OSError, mend: str) -> LayerscopeError:
    return LayerscopeError(
        f"`out={str(folder)!r}` cannot be written ({error.strerror or error}): {mend}"
    )


def _drop_abandoned(folder: Path) -> None:
    """Delete the hidden folders beside another whose process was killed: nobody holds their lock any more."""
    for aside in folder.parent.glob(f".{escape(folder.name)}.*.part"):
        if (aside / HELD).is_file():  # else it is not ours
            _drop(aside)


def _drop(aside: Path) -> None:
    """Delete a hidden folder that nobody holds, what tells that it is ours last."""
    # Timeout: still being written
    with suppress(OSError, Timeout), FileLock(aside / HELD, timeout=0):
        for inside in aside.iterdir():
            if inside.name != HELD:
                shutil.rmtree(inside) if inside.is_dir() else inside.unlink()
        with suppress(OSError):  # Windows deletes no open file
            (aside / HELD).unlink()
    drop_empty([aside])
