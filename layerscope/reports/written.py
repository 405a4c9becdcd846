"""Files for a reader, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from layerscope.errors import LayerscopeError


def ending(path: Path, what: str, option: str, suffixes: tuple[str, ...]) -> Path:
    """Return the file something goes to, `~` spelt out, refused before the long job where it can be none."""
    try:
        target = path.expanduser()
        folder = target.is_dir()
    except (OSError, RuntimeError) as error:  # RuntimeError: ~ of nobody
        reason = getattr(error, "strerror", None) or error
        raise LayerscopeError(_refused(what, path, reason, option)) from error
    if target.suffix.lower() not in suffixes:
        raise LayerscopeError(f"{option} {str(target)!r} is no name of a {what}: let it end in {suffixes[0]}")
    if folder:
        inside = target / f"report{suffixes[0]}"
        raise LayerscopeError(f"{option} {str(target)!r} is a folder: name a file in it, such as {inside}")
    return target


def write(path: Path, text: str, what: str, option: str) -> Path:
    """Write beside the file and rename, so that what was there stays until the new one is whole."""
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
        raise LayerscopeError(_refused(what, path, reason, option)) from error
    return path


def _refused(what: str, path: Path, reason: object, option: str) -> str:
    return f"{what} {str(path)!r} cannot be written ({reason}): choose another file with {option}"
