"""Names and texts that came from data, made fit to be shown."""

from __future__ import annotations

import unicodedata

SPELT = frozenset(("Cc", "Cs", "Zl", "Zp"))
"""Unicode categories that steer a terminal or cannot be shown: controls, half surrogate pairs, line separators."""
DIRECTIONS = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Marks that turn the direction of the text around them."""


def plain(text: str) -> str:
    """Return a text in one line, with what would steer a terminal or turn a line around spelt out."""
    return "".join(_spelt(c) if unicodedata.category(c) in SPELT or c in DIRECTIONS else c for c in text)


def pooling_name(pooling: str | None) -> str:
    """Return in words what one vector of a sample is."""
    if pooling is None:
        return "by token"
    words = {"position": "one token of each sample", "own": "the model's projection"}
    return words.get(pooling, f"{pooling} pooling")


def _spelt(character: str) -> str:
    return character.encode("unicode_escape").decode()
