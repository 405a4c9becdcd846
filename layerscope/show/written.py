"""Files for a reader, written whole or not at all."""

from collections.abc import Callable
from pathlib import Path

from layerscope.core import LayerscopeError, aside, require

PAGE_MARK = '<meta name="generator" content="layerscope'
"""What a page of ours says of itself."""
PAGES = (".html", ".htm")
HEAD = 1 << 16


def ending(
    path: Path, what: str, option: str, suffixes: tuple[str, ...], mark: str
) -> Path:
    """Return the file something goes to, `~` spelt out, refused before the long job where it can be none.

    A file that is there is replaced only where `mark` stands in its head, as in those that
    layerscope writes.
    """
    fault = ""
    try:
        target = path.expanduser()
        if target.suffix.lower() not in suffixes:
            fault = f"is not a valid name for a {what}: let it end in {suffixes[0]}"
        elif target.is_dir():
            inside = target / f"report{suffixes[0]}"
            fault = f"is a folder: name a file in it, such as {inside}"
        elif target.is_file():
            with target.open("rb") as file:
                if mark.encode() not in file.read(HEAD):
                    fault = (
                        f"exists and is not a {what} of layerscope's: name a new file"
                    )
    except (OSError, RuntimeError) as error:  # RuntimeError: ~ of nobody
        reason = getattr(error, "strerror", None) or error
        raise _refused(what, path, reason, option) from error
    if fault:
        raise LayerscopeError(f"{option} {str(target)!r} {fault}")
    return target


def write(path: Path, text: str, what: str, option: str) -> Path:
    """Write a file, whole or not at all, and the folders it is to lie in."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"{str(path.parent)!r} is not a folder"
        raise _refused(what, path, reason, option) from error
    aside(path, lambda part: part.write_text(text, encoding="utf-8", errors="replace"))
    return path


def write_page(out: str | Path, text: Callable[[], str]) -> Path:
    """Write a page, rendered once it is known that the file can be one.

    A page of ours that is there is replaced.
    """
    target = ending(Path(out), "page", "`out`", PAGES, PAGE_MARK)
    require("charts", "the page")
    return write(target, text(), "page", "`out`")


def _refused(what: str, path: Path, reason: object, option: str) -> LayerscopeError:
    return LayerscopeError(
        f"{what} {str(path)!r} cannot be written ({reason}): choose another file with {option}"
    )
