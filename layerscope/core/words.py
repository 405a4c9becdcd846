"""Small words of a message: counts, lists, names fit for a folder, and how it names an option.

An option is `` `batch_size=8` `` in Python and --batch-size 8 at a command line. Lines are written as for Python; where
a command runs, what it prints is spelt for the command line.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

NAMED = re.compile(r"`(\w+)(?:=([^`]*))?`")
_flags: set[str] = set()


def folder_name(text: str) -> str:
    """Return a text as a name fit for a folder: letters, digits, dots, dashes and underscores."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-.")[:80] or "data"


def listed(names: Sequence[str], limit: int = 5) -> str:
    """Return the first few names, joined by commas, with dots where there are more."""
    return ", ".join(names[:limit]) + (", …" if len(names) > limit else "")


def count(number: int, noun: str) -> str:
    """Return `1 row`, `3 rows`, `1,000 rows`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def use_flags(flags: Collection[str]) -> None:
    """Spell options as these flags from now on; the others stay as they are."""
    _flags.clear()
    _flags.update(flags)


def spelled(text: str) -> str:
    """Return a line with the options it names in backticks spelt as whoever reads it gives them.

    >>> from layerscope.core.words import spelled, use_flags
    >>> use_flags(["--dtype", "--allow-pickle"])
    >>> spelled("try `dtype='float32'`, or trust the file with `allow_pickle=True`")
    'try --dtype float32, or trust the file with --allow-pickle'
    >>> use_flags([])
    >>> spelled("try `dtype='float32'`")
    "try `dtype='float32'`"
    """

    def as_flag(found: re.Match[str]) -> str:
        flag, value = f"--{found[1].replace('_', '-')}", found[2]
        if flag not in _flags:
            return found[0]
        return flag if value in (None, "True") else f"{flag} {value.strip(chr(39) + chr(34))}"

    return NAMED.sub(as_flag, text)
