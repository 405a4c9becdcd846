"""The error for wrong input, and the words of its line: near names, lists, counts, and how it names an option.

An option is `` `batch_size=8` `` in Python and --batch-size 8 at a command line. Lines are written
as for Python; where a command runs, what it prints is spelt for the command line.
"""

import difflib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

NAMED = re.compile(r"`\w+(?:=[^`]*)?`")
BARE = re.compile(r"^\w+(?= (?:is|has) )|\b[a-z]+(?:_[a-z]+)+\b(?!')")
"""An option whose value is wrong, as lines on it begin, and one whose name can be no word of the line."""
_flags: set[str] = set()


class LayerscopeError(ValueError):
    """A mistake in what was given, in one line: what is wrong, the value, and how to fix it.

    The command line prints it without a traceback and exits with status 2.

    >>> layerscope.open_run("runs/missing")
    Traceback (most recent call last):
        ...
    layerscope.core.errors.LayerscopeError: run folder 'runs/missing' does not exist
    """


def near(name: str, names: Iterable[str]) -> str:
    """Return `", did you mean X?"` for the known name nearest to a misspelt one, or an empty string."""
    by_lower = {other.lower().lstrip("-"): other for other in reversed(list(names))}
    matches = difflib.get_close_matches(name.lower().lstrip("-"), list(by_lower), n=1)
    return f", did you mean {by_lower[matches[0]]}?" if matches else ""


def choices(name: str, available: Iterable[str], lead: str = "choose") -> str:
    """Return the end of a line on a name that does not exist: the near one, if any, and all there are."""
    names = list(available)
    hint = near(name, names)
    listing = f"{lead} {', '.join(names)}"
    return f"{hint} ({listing})" if hint else f": {listing}"


def first_line(error: BaseException, limit: int = 120) -> str:
    """Return the first line of what a library raised, or where it says nothing the error's name."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:limit].rstrip()


def capital(title: str) -> str:
    """Return a title with a capital where that keeps the name.

    >>> from layerscope.core.errors import capital
    >>> capital("linear probe"), capital("kNN probe"), capital("α-ReQ")
    ('Linear probe', 'kNN probe', 'α-ReQ')
    """
    if title[1:2].isupper() or not title[:1].isascii():
        return title
    return title[:1].upper() + title[1:]


def unreadable(path: Path, error: OSError) -> LayerscopeError:
    """Return the line on a file that is there and cannot be read."""
    return LayerscopeError(
        f"{str(path)!r} cannot be read ({error.strerror}): check its permissions"
    )


@contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """Within, an import that fails is a line on the extra of layerscope that brings the package, after `what`."""
    try:
        yield
    # OSError: a C library of the package is missing
    except (ImportError, OSError) as error:
        raise LayerscopeError(f'{what}: pip install "layerscope[{extra}]"') from error


def refuse_dangling(path: Path) -> None:
    """Raise for a link whose target is not there: its name is right, and no other file is meant."""
    if path.is_symlink() and not path.exists():
        raise LayerscopeError(
            f"{str(path)!r} is a link to {os.readlink(path)!r}, which does not exist: fix the link"
        )


def folder_name(text: str) -> str:
    """Return a text as a name fit for a folder: letters, digits, dots, dashes and underscores."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-.")[:80] or "data"


def listed(names: Sequence[str], limit: int = 5) -> str:
    """Return the first few names, joined by commas, with dots where there are more."""
    return ", ".join(names[:limit]) + (", …" if len(names) > limit else "")


def count(number: int, noun: str) -> str:
    """Return a number of things.

    >>> count(1, "row"), count(2, "row"), count(1000, "row")
    ('1 row', '2 rows', '1,000 rows')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def spans(numbers: Collection[int], noun: str = "") -> str:
    """Return `blocks 4-7,9`: numbers with runs of them joined, after a noun where there is one.

    >>> from layerscope.core.errors import spans
    >>> spans([4, 5, 6, 9], "block"), spans([2], "block"), spans([1, 2, 4])
    ('blocks 4-6,9', 'block 2', '1-2,4')
    """
    # within a run numbers and places rise alike
    entries = enumerate(sorted(numbers))
    by_run = groupby(entries, lambda entry: entry[1] - entry[0])
    runs = [[number for _, number in entries] for _, entries in by_run]
    text = ",".join(
        str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs
    )
    return f"{noun}{'s' * (len(numbers) > 1)} {text}" if noun else text


def use_flags(flags: Collection[str]) -> None:
    """Spell options as these flags from now on; the others stay as they are."""
    _flags.clear()
    _flags.update(flags)


def spelled(text: str) -> str:
    """Return a line with the options it names, in backticks or as its first word, as whoever reads it gives them.

    >>> from layerscope.core.errors import spelled, use_flags
    >>> use_flags(["--dtype", "--allow-pickle"])
    >>> spelled("try `dtype='float32'`, or trust the file with `allow_pickle=True`")
    'try --dtype float32, or trust the file with --allow-pickle'
    >>> spelled("dtype is 3: give a name")
    '--dtype is 3: give a name'
    >>> spelled("allow_pickle needs a file that you trust")
    '--allow-pickle needs a file that you trust'
    >>> use_flags([])
    >>> spelled("try `dtype='float32'`")
    "try `dtype='float32'`"
    """

    def as_flag(match: re.Match[str]) -> str:
        name, _, value = match[0].strip("`").partition("=")
        flag = f"--{name.replace('_', '-')}"
        if flag not in _flags:
            return match[0]
        if value in ("", "True"):
            return flag
        bare = value.strip("'\"")
        return f"{flag} {bare}"

    return BARE.sub(as_flag, NAMED.sub(as_flag, text))
