"""The tables of recipes: claims with their verdicts, and numbers beside those in print."""

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from layerscope.show import EMPTY, Cell, Column, Sentences, Table, row, words
from layerscope_papers.recipe import Claim, Interval, Printed
from layerscope_papers.verdicts import WORDS, Verdict, Word


def said(word: Word, count: int = 1) -> str:
    """Return a verdict as a verb, of one claim or of several."""
    if word not in ("not decided", "not applicable"):
        return word
    return f"is {word}" if count == 1 else f"are {word}"


def counted(words: Iterable[Word]) -> str:
    """Return how many claims got each verdict, as "2 of 3 claims held, 1 did not hold"."""
    given = list(words)
    counts = [(given.count(word), word) for word in WORDS if word in given]
    first, *rest = (f"{n} {said(word, n)}" for n, word in counts)
    first = first.replace(" ", f" of {len(given)} claims ", 1)
    return ", ".join((first, *rest))


def claims(found: Iterable[tuple[str, Verdict]], in_words: bool = False) -> Table:
    """Return a row for each verdict of a recipe: short enough for a terminal, or with the claim's sentence."""
    last = (
        (Column("over", "left"), Column("in words", "left", wraps=True))
        if in_words
        else (Column("n"),)
    )
    heads = (
        Column("claim", "left"),
        Column("verdict", "left"),
        Column("value"),
        Column("95 % interval", "left"),
        Column("needs", "left"),
        *last,
    )
    rows = []
    for recipe, verdict in found:
        claim, interval = verdict.claim, verdict.interval
        cells = (
            words(f"{recipe} {claim.name}"),
            Cell(
                verdict.word,
                value=verdict.word,
                marked=in_words and verdict.word == "did not hold",
            ),
            Cell(_digits(interval.value), value=interval.value),
            words(_interval(interval)),
            words(_needs(claim)),
        )
        counts = (
            (words(over(verdict)), words(measured(verdict)))
            if in_words
            else (Cell(str(interval.n), value=interval.n),)
        )
        rows.append(row(*cells, *counts))
    return Table("Claims", heads, tuple(rows), name="claims")


def in_sentences(found: Iterable[tuple[str, Verdict]]) -> tuple[Sentences, ...]:
    """Return the claims in words under their verdicts, each with its value and what that is, in its unit."""
    texts: dict[Word, list[str]] = {word: [] for word in WORDS}
    for recipe, verdict in found:
        claim, value = verdict.claim, _digits(verdict.interval.value)
        statistic = f"Measured: {value} ({claim.statistic}), needs {_needs(claim)}."
        texts[verdict.word].append(
            f"{recipe} {claim.name}: {claim.sentence} {statistic}"
        )
    return tuple(
        Sentences(word.capitalize(), tuple(each))
        for word, each in texts.items()
        if each
    )


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


def measured(verdict: Verdict) -> str:
    """Return a claim's sentence with its statistic."""
    return f"{verdict.claim.sentence[:-1]} ({verdict.claim.statistic})."


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
    quantity: str,
    value: float | None,
    low: float | None,
    high: float | None,
    printed: Printed | None,
) -> dict[str, Any]:
    """Return ours beside what is printed, and whether the two compare."""
    comparable = printed is not None and not printed.differs and value is not None
    return {
        "quantity": quantity,
        "printed": printed and printed.value,
        "where": printed.where if printed else "",
        "ours": value,
        "low": low,
        "high": high,
        "comparable": "yes" if comparable else "no",
        "why_not": "" if comparable else printed.differs if printed else "not in print",
    }


def numbers(frame: pd.DataFrame) -> Table:
    """Return a row for each quantity, with intervals and printed numbers where there are any."""
    there = frame["low"].notna().any(), frame["printed"].notna().any()
    heads = (
        Column("quantity", "left"),
        Column("ours"),
        *([Column("95 % interval", "left")] if there[0] else []),
        *([Column("printed"), Column("where", "left", wraps=True)] if there[1] else []),
    )
    rows = [
        row(
            entry["quantity"],
            *_number(entry["ours"], 4),
            *(_interval_of(entry) if there[0] else ()),
            *(
                (*_number(entry["printed"], 6), words(_where(entry)))
                if there[1]
                else ()
            ),
        )
        for entry in frame.to_dict("records")
    ]
    return Table("Numbers", heads, tuple(rows), name="numbers")


def _number(value: float, digits: int) -> tuple[Cell]:
    return (EMPTY,) if pd.isna(value) else (Cell(f"{value:.{digits}g}", value=value),)


def _interval_of(entry: dict[str, Any]) -> tuple[Cell]:
    return (
        (EMPTY,)
        if pd.isna(entry["low"])
        else (words(f"{_digits(entry['low'])} … {_digits(entry['high'])}"),)
    )


def _where(entry: dict[str, Any]) -> str:
    """Return where a number is printed, and why it is not comparable if it is not."""
    differs = (
        f" (not comparable: {entry['why_not']})"
        if entry["where"] and entry["why_not"]
        else ""
    )
    return f"{entry['where']}{differs}"
