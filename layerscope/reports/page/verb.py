from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from layerscope.errors import LayerscopeError
from layerscope.runs.run import Run, open_run

SUFFIXES = (".html", ".htm")
DEFAULT = "report.html"

Given = Run | str | Path


def report(runs: Given | Sequence[Given], out: str | Path | None = None) -> Path:
    """Write one HTML file about one or more runs and return its path.

    It opens offline and asks for nothing outside itself; every text that came from a model or data is shown as it is
    and never run. Several runs are overlaid by percent of depth.

    Args:
        runs: a run or its folder, or several of them.
        out: the file, ending in .html; None is `report.html` in the run's folder, or here for several runs. A file
            that is there is replaced.

    Raises:
        LayerscopeError: for no run, one given twice, a folder that holds no run, a run that has no table yet, a file
            that cannot be written, and where plotly is not installed.

    """
    chosen = _open(runs)
    target = _target((chosen[0].path if len(chosen) == 1 else Path()) / DEFAULT if out is None else Path(out))
    try:
        from layerscope.reports.page.render import render
    except ImportError as error:
        package = str(error.name).partition(".")[0]
        raise LayerscopeError(f'the page needs {package}: pip install "layerscope[report]"') from error

    return _write(target, render(chosen))


def _target(out: Path) -> Path:
    """Return the file the page goes to, `~` spelt out, refused before anything is read where it can be none."""
    try:
        target = out.expanduser()
        folder = target.is_dir()
    except (OSError, RuntimeError) as error:  # RuntimeError: ~ of nobody
        reason = getattr(error, "strerror", None) or error
        raise LayerscopeError(
            f"page {str(out)!r} cannot be written ({reason}): choose another file with --out"
        ) from error
    if target.suffix.lower() not in SUFFIXES:
        raise LayerscopeError(f"--out {str(target)!r} is no name of a page: let it end in .html")
    if folder:
        raise LayerscopeError(f"--out {str(target)!r} is a folder: name a file in it, such as {target / DEFAULT}")
    return target


def _open(runs: Given | Sequence[Given]) -> list[Run]:
    given = [runs] if isinstance(runs, (Run, str, Path)) else list(runs)
    if not given:
        raise LayerscopeError("no run is named: give the folder of one, or of several")
    found: dict[Path, Run] = {}
    for entry in given:
        run = entry if isinstance(entry, Run) else open_run(entry)
        place = run.path.resolve()
        if place in found:
            raise LayerscopeError(f"run {str(run.path)!r} is given twice: name each run once")
        found[place] = run
    return list(found.values())


def _write(path: Path, text: str) -> Path:
    """Write beside the file and rename, so that a page that was there stays until the new one is whole."""
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8", errors="replace")
        os.replace(part, path)
    except OSError as error:
        reason = f"{str(path.parent)!r} is no folder"
        if path.parent.is_dir():
            part.unlink(missing_ok=True)
            reason = str(error.strerror)
        raise LayerscopeError(
            f"page {str(path)!r} cannot be written ({reason}): choose another file with --out"
        ) from error
    return path
