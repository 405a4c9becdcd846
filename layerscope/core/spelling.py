"""How a line names an option: `` `batch_size=8` `` in Python, --batch-size 8 at a command line.

Lines are written as for Python; where a command runs, what it prints is spelt for the command line.
"""

from __future__ import annotations

import re
from collections.abc import Collection

NAMED = re.compile(r"`(\w+)(?:=([^`]*))?`")
_flags: set[str] = set()


def use_flags(flags: Collection[str]) -> None:
    """Spell options as these flags from now on; the others stay as they are."""
    _flags.clear()
    _flags.update(flags)


def spelled(text: str) -> str:
    """Return a line with the options it names in backticks spelt as whoever reads it gives them.

    >>> from layerscope.core.spelling import spelled, use_flags
    >>> use_flags(["--dtype", "--allow-pickle"])
    >>> spelled("try `dtype='float32'`, or trust the file with `allow_pickle=True`")
    'try --dtype float32, or trust the file with --allow-pickle'
    >>> use_flags([])
    >>> spelled("try `dtype='float32'`")
    "try `dtype='float32'`"
    """
    return NAMED.sub(_as_flag, text)


def _as_flag(found: re.Match[str]) -> str:
    flag, value = f"--{found[1].replace('_', '-')}", found[2]
    if flag not in _flags:
        return found[0]
    return flag if value in (None, "True") else f"{flag} {value.strip(chr(39) + chr(34))}"
