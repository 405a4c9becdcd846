import difflib
import os
from collections.abc import Iterable
from pathlib import Path


class LayerscopeError(ValueError):
    """A mistake in what was given, in one line: what is wrong, the value, and how to fix it.

    The command line prints it without a traceback and exits with status 2.

    >>> layerscope.open_run("runs/missing")
    Traceback (most recent call last):
        ...
    layerscope.core.errors.LayerscopeError: run folder 'runs/missing' does not exist
    """


def near(name: str, known: Iterable[str]) -> str:
    """Return `", did you mean X?"` for the known name nearest to a misspelt one, or an empty string."""
    by_lower = {other.lower().lstrip("-"): other for other in reversed(list(known))}
    matches = difflib.get_close_matches(name.lower().lstrip("-"), list(by_lower), n=1)
    return f", did you mean {by_lower[matches[0]]}?" if matches else ""


def choices(name: str, known: Iterable[str], lead: str = "choose") -> str:
    """Return the end of a line on a name that does not exist: the near one, if any, and all there are."""
    names = list(known)
    hint, listed = near(name, names), f"{lead} {', '.join(names)}"
    return f"{hint} ({listed})" if hint else f": {listed}"


def unreadable(path: Path, error: OSError) -> LayerscopeError:
    """Return the line on a file that is there and cannot be read."""
    return LayerscopeError(f"{str(path)!r} cannot be read ({error.strerror}): check its permissions")


def refuse_dangling(path: Path) -> None:
    """Raise for a link whose target is not there: its name is right, and no other file is meant."""
    if path.is_symlink() and not path.exists():
        raise LayerscopeError(f"{str(path)!r} is a link to {os.readlink(path)!r}, which does not exist: mend the link")
