"""Small words of a message: counts, lists, names fit for a folder."""

from __future__ import annotations

import re
from collections.abc import Sequence


def folder_name(text: str) -> str:
    """Return a text as a name fit for a folder: letters, digits, dots, dashes and underscores."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-.")[:80] or "data"


def listed(names: Sequence[str], limit: int = 5) -> str:
    """Return the first few names, joined by commas, with dots where there are more."""
    return ", ".join(names[:limit]) + (", …" if len(names) > limit else "")


def count(number: int, noun: str) -> str:
    """Return `1 row`, `3 rows`, `1,000 rows`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
