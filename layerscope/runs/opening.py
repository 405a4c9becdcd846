"""A run opened by the path of its folder, or by its name on the hub.

A path that is wrong is answered with what is near: a run whose name is alike, or those that lie in
the folder that was given.
"""

from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError, near, refuse_dangling
from layerscope.core.folder_lock import LOCK
from layerscope.core.hub import on_this_machine
from layerscope.runs.folder import RunFolder
from layerscope.runs.run import Run


def open_run(path: str | Path) -> Run:
    """Open a run folder, or a run that was pushed to the hub, by `hf://user/name`.

    Raises `LayerscopeError` for a folder that is missing or holds no run; the error names the runs
    nearby.

    >>> layerscope.open_run("runs/minilm")
    Run('runs/minilm': all-MiniLM-L6-v2, 6 layers, reviews)
    """
    folder = on_this_machine(path)
    refuse_dangling(folder)
    if folder.is_file():
        raise LayerscopeError(f"{str(path)!r} is a file: give the folder of a run")
    if not folder.is_dir():
        hint = near(folder.name, [p.name for p in _runs_in(folder.parent)])
        raise LayerscopeError(f"run folder {str(path)!r} does not exist{hint}")
    refuse_unfinished(folder)
    if not RunFolder.exists(folder) and (inside := _runs_in(folder)):
        raise LayerscopeError(
            f"{str(path)!r} is not a run but holds some: give {', '.join(map(str, inside[:5]))}"
        )
    return Run(folder)


def run_of(source: Any) -> Run | None:
    """Return the run that was given, opened where it is a folder of one.

    It is None where a model was given.
    """
    if isinstance(source, Run):
        return source
    if not isinstance(source, (str, Path)):
        return None
    folder = on_this_machine(source)
    return open_run(folder) if RunFolder.exists(folder) else None


def refuse_unfinished(folder: Path) -> None:
    """Raise where a run was begun and did not come as far as to be opened: a stream has no manifest until its end."""
    begun = any((folder / name).exists() for name in (LOCK, "stream"))
    if begun and not RunFolder.exists(folder):
        raise LayerscopeError(
            f"{str(folder)!r} is an unfinished run: repeat the command that began it to finish it"
        )


def _runs_in(folder: Path) -> list[Path]:
    """Return the runs in a folder, by name; none where it cannot be read."""
    try:
        return sorted(inside for inside in folder.iterdir() if RunFolder.exists(inside))
    except OSError:
        return []
