"""The tables of recipes: claims with their verdicts, and numbers beside those in print."""

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from layerscope.show import EMPTY, Cell, Column, Sentences, Table, row, words
from layerscope_papers.recipe import PAPERS, Claim, Interval, Number, Printed
from layerscope_papers.verdicts import WORDS, Verdict, Word


def said(word: Word, count: int = 1) -> str:
    """Return a verdict as a verb, of one claim or of several.

    >>> said("held"), said("not decided"), said("not applicable", 2)
    ('held', 'is not decided', 'are not applicable')
    """
    if word not in ("not decided", "not applicable"):
        return word
    return f"is {word}" if count == 1 else f"are {word}"


def counted(words: Iterable[Word]) -> str:
    """Return how many claims got each verdict.

    >>> counted(["held", "did not hold", "held", "not decided"])
    '2 of 4 claims held, 1 did not hold, 1 is not decided'
    """
    given = list(words)
    counts = [(given.count(word), word) for word in WORDS if word in given]
    first, *rest = (f"{n} {said(word, n)}" for n, word in counts)
    first = first.replace(" ", f" of {len(given)} claims ", 1)
    return ", ".join((first, *rest))


def claims(found: Iterable[tuple[str, Verdict]]) -> Table:
    """Return a row for each verdict of a recipe, short enough for a terminal."""
    heads = (
        Column("claim", "left"),
        Column("verdict", "left"),
        Column("value"),
        Column("95 % interval", "left"),
        Column("needs", "left"),
        Column("n"),
    )
    rows = []
    for recipe, verdict in found:
        n = verdict.interval.n
        name = words(f"{recipe} {verdict.claim.name}")
        rows.append(
            row(name, _word(verdict), *_statistic(verdict), Cell(str(n), value=n))
        )
    return Table("Claims", heads, tuple(rows), name="claims")


def in_words(found: Iterable[tuple[str, Verdict]]) -> Table:
    """Return a row for each verdict: what the paper says, what was measured, and what would decide it."""
    heads = (
        Column("claim", "left"),
        Column("the paper says", "left", wraps=True),
        Column("measured", "left", wraps=True),
        Column("value"),
        Column("95 % interval", "left"),
        Column("needs", "left"),
        Column("verdict", "left"),
        Column("would decide it", "left", wraps=True),
    )
    rows = []
    for recipe, verdict in found:
        claim = verdict.claim
        cells = (
            words(f"{recipe} {claim.name}"),
            words(claim.sentence),
            words(f"{claim.statistic}; {over(verdict)}"),
            *_statistic(verdict),
            _word(verdict, marked=verdict.word == "did not hold"),
            words(verdict.wants),
        )
        rows.append(row(*cells))
    return Table("Claims", heads, tuple(rows), name="claims")


def _word(verdict: Verdict, *, marked: bool = False) -> Cell:
    return Cell(verdict.word, value=verdict.word, marked=marked)


def _statistic(verdict: Verdict) -> tuple[Cell, Cell, Cell]:
    """Return a statistic, its interval and its threshold."""
    value = verdict.interval.value
    return (
        Cell(_digits(value), value=value),
        words(_interval(verdict.interval)),
        words(_needs(verdict.claim)),
    )


def in_sentences(found: Iterable[tuple[str, Verdict]]) -> tuple[Sentences, ...]:
    """Return the claims by paper, each with its verdict, in words, its value in its unit, and what would decide it."""
    texts: dict[str, list[str]] = {}
    for recipe, verdict in found:
        claim, value = verdict.claim, _digits(verdict.interval.value)
        wants = f" Would decide it: {verdict.wants}." if verdict.wants else ""
        texts.setdefault(PAPERS[recipe[0]], []).append(
            f"{recipe} {claim.name}, {verdict.word}: {claim.sentence} "
            f"Measured: {value} ({claim.statistic}; {over(verdict)}), needs "
            f"{_needs(claim)}.{wants}"
        )
    return tuple(Sentences(paper, tuple(lines)) for paper, lines in texts.items())


def _needs(claim: Claim) -> str:
    return f"{'>' if claim.direction == 'above' else '<'} {claim.threshold:g}".replace(
        "e-0", "e-"
    )


def _interval(interval: Interval) -> str:
    if interval.low == interval.high:
        return ""
    return (
        f"{_digits(interval.low)} … {_digits(interval.high)}"
        if math.isfinite(interval.low)
        else "too few"
    )


def over(verdict: Verdict) -> str:
    """Return what the interval is taken over, as "5 seeds"."""
    return (
        verdict.claim.over
        if verdict.interval.n == 1
        else f"{verdict.interval.n} {verdict.claim.over}"
    )


def _digits(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "–"


def compared(
    quantity: str, ours: Number | None, printed: Printed | None
) -> dict[str, Any]:
    """Return ours beside what is printed, and whether the two compare."""
    comparable = printed is not None and not printed.differs and ours is not None
    why_not = printed.differs if printed else "not in print"
    return {
        "quantity": quantity,
        "printed": printed and printed.value,
        "where": printed.where if printed else "",
        "ours": ours and ours.value,
        "low": ours and ours.low,
        "high": ours and ours.high,
        "comparable": "yes" if comparable else "no",
        "why_not": "" if comparable else why_not,
    }


def numbers(frame: pd.DataFrame) -> Table:
    """Return a row for each quantity, with intervals and printed numbers where there are any."""
    has_interval = frame["low"].notna().any()
    has_print = frame["printed"].notna().any()
    heads = [Column("quantity", "left"), Column("ours")]
    if has_interval:
        heads += [Column("95 % interval", "left")]
    if has_print:
        heads += [Column("printed"), Column("where", "left", wraps=True)]
    rows = []
    for entry in frame.to_dict("records"):
        cells = [words(entry["quantity"]), _number(entry["ours"], 4)]
        if has_interval:
            ends = Interval(entry["ours"], entry["low"], entry["high"], 0)
            cells += [EMPTY if pd.isna(ends.low) else words(_interval(ends))]
        if has_print:
            cells += [_number(entry["printed"], 6), words(_where(entry))]
        rows.append(row(*cells))
    return Table("Numbers", tuple(heads), tuple(rows), name="numbers")


def _number(value: float, digits: int) -> Cell:
    return EMPTY if pd.isna(value) else Cell(f"{value:.{digits}g}", value=value)


def _where(entry: dict[str, Any]) -> str:
    """Return where a number is printed, and why it is not comparable if it is not."""
    differs = (
        f" (not comparable: {entry['why_not']})"
        if entry["where"] and entry["why_not"]
        else ""
    )
    return f"{entry['where']}{differs}"
