"""What metrics and the units of their differences are called, wherever they are shown."""

from __future__ import annotations

from layerscope.runs.registry import about
from layerscope.show.plots import Meaning


def titled(metric: str, variant: str | None = None) -> str:
    """Return a metric's title as one number for each layer, with the variant where that tells it from another."""
    title = about(metric).title + (" to the last layer" if about(metric).needs == "pairs" else "")
    return f"{title} ({variant.replace(',', ', ')})" if variant else title


def capital(title: str) -> str:
    """Return a title with a capital where that keeps the name: not of "kNN probe", and not of "α-ReQ"."""
    return title if title[1:2].isupper() or not title[:1].isascii() else title[:1].upper() + title[1:]


def unit_apart(metric: str) -> str:
    """Return the unit of a metric's differences: of two shares of 100 % points."""
    unit = about(metric).unit
    return "points" if unit == "%" else unit


def meaning_of(metric: str) -> Meaning:
    """Return what a metric means, its formula, which direction is which, and where it comes from."""
    known = about(metric)
    more = (("Formula", known.formula),) if known.formula else ()
    return Meaning(known.meaning, known.direction, known.source, more)
