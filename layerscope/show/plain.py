"""Names and texts that came from data, made fit to be shown."""

import html
import re
import unicodedata

SPELT = frozenset(("Cc", "Cs", "Zl", "Zp"))
"""Unicode categories that steer a terminal or cannot be shown: controls, half surrogate pairs, line separators."""
DIRECTIONS = frozenset(
    "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
"""Marks that turn the direction of the text around them."""


def plain(text: str) -> str:
    """Return a text in one line, with what would steer a terminal or turn a line around spelt out."""
    if text.isascii() and text.isprintable():
        return text
    spelt = {
        ord(c): c.encode("unicode_escape").decode()
        for c in set(text)
        if unicodedata.category(c) in SPELT or c in DIRECTIONS
    }
    return text.translate(spelt)


def escape(text: str) -> str:
    """Return a text in one line that Markdown and HTML show as it is."""
    line = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )
    return html.escape(re.sub(r"[!#$*@\[\\\]^_`{|}~]", r"\\\g<0>", line), quote=False)


def pooling_name(pooling: str | None) -> str:
    """Return in words what one vector of a sample is."""
    if pooling is None:
        return "by token"
    words = {
        "position": "one token of each sample",
        "own": "the model's projection",
        "tokens": "token by token",
    }
    return words.get(pooling, f"{pooling} pooling")


def folded(name: str, width: int) -> str:
    """Return a name in lines of at most `width` characters, broken between its words where it can be."""
    lines = [""]
    for word in re.split(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[-_./ ])", name):
        if lines[-1] and len((lines[-1] + word).rstrip()) > width:
            lines.append("")
        lines[-1] += word
    lines = [line.rstrip() for line in lines]
    return "\n".join(
        line[i : i + width]
        for line in lines
        for i in range(0, max(1, len(line)), width)
    )
