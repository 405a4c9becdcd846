"""The tables of recipes: claims with their verdicts, and numbers beside those in print."""

import math
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import starmap
from typing import Any

import pandas as pd

from layerscope.show import EMPTY, Cell, Column, Sentences, Table, words
from layerscope_papers.intervals import Interval
from layerscope_papers.recipe import PAPERS, Claim, Number, Printed
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


def claims(named: Iterable[tuple[str, Verdict]]) -> Table:
    """Return a row for each verdict of a recipe, short enough for a terminal."""
    return _table(named, (CLAIM, WORD, *STATISTIC, Column("n", field="n")))


def in_words(named: Iterable[tuple[str, Verdict]]) -> Table:
    """Return a row for each verdict: what the paper says, what was measured, and what would decide it."""
    says = Column("the paper says", "left", wraps=True, field="sentence")
    measured = Column("measured", "left", wraps=True, field="measured")
    wants = Column("would decide it", "left", wraps=True, field="wants")
    return _table(named, (CLAIM, WORD, says, measured, *STATISTIC, wants))


def _table(named: Iterable[tuple[str, Verdict]], columns: tuple[Column, ...]) -> Table:
    rows = []
    for recipe, verdict in named:
        claim = verdict.claim
        interval = verdict.interval
        statistic = f"{claim.statistic}; {over(verdict)}"
        rows.append(
            vars(claim)
            | vars(interval)
            | {
                "claim": f"{recipe} {claim.name}",
                "measured": statistic,
                "interval": _interval(interval),
                "needs": _needs(claim),
                "verdict": verdict.word,
                "wants": verdict.wants,
                "fell": verdict.word == "did not hold",
            }
        )
    frame = pd.DataFrame(rows)
    return Table.of(frame, columns, "Claims", marked="fell", name="claims")


def by_paper(
    named: Iterable[tuple[str, Verdict]], but: Word | None = None
) -> Sentences:
    """Return how many claims of each paper held, followed by the claims in words, but for those with a verdict."""
    papers: dict[str, list[tuple[str, Verdict]]] = {}
    for recipe, verdict in named:
        papers.setdefault(PAPERS[recipe[0]], []).append((recipe, verdict))
    lines = []
    for paper, claims in papers.items():
        lines.append(f"{paper}: {counted(verdict.word for _, verdict in claims)}.")
        for recipe, verdict in claims:
            if verdict.word != but:
                lines.append(_sentence(recipe, verdict))
    return Sentences("By paper", tuple(lines))


def in_sentences(named: Iterable[tuple[str, Verdict]]) -> Sentences:
    """Return claims in words, a sentence each."""
    return Sentences("Claims in words", tuple(starmap(_sentence, named)))


def _sentence(recipe: str, verdict: Verdict) -> str:
    """Return a claim with its verdict, its value in its unit, and what would decide it."""
    claim = verdict.claim
    value = _digits(verdict.interval.value)
    before = "It applies to" if verdict.word == "not applicable" else "Would decide it"
    wants = f" {before}: {verdict.wants}." if verdict.wants else ""
    return (
        f"{recipe} {claim.name}, {verdict.word}: {claim.sentence} "
        f"Measured: {value or 'nothing'} ({claim.statistic}; {over(verdict)}), needs "
        f"{_needs(claim)}.{wants}"
    )


def _needs(claim: Claim) -> str:
    return f"{'>' if claim.direction == 'above' else '<'} {claim.threshold:g}".replace(
        "e-0", "e-"
    )


def _interval(interval: Interval) -> str:
    if interval.low == interval.high:
        return ""
    if math.isnan(interval.low):
        return "too few"
    return f"{_digits(interval.low)} … {_digits(interval.high)}"


def over(verdict: Verdict) -> str:
    """Return what the interval is taken over, as "5 seeds"."""
    return (
        verdict.claim.over
        if verdict.interval.n == 1
        else f"{verdict.interval.n} {verdict.claim.over}"
    )


def _digits(value: float, places: int = 3) -> str:
    return f"{value:.{places}g}" if math.isfinite(value) else ""


CLAIM = Column("claim", "left", field="claim")
WORD = Column("verdict", "left", field="verdict")
STATISTIC = (
    Column("value", field="value", form=_digits),
    Column("95 % interval", "left", field="interval"),
    Column("needs", "left", field="needs"),
)


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
    columns = [
        Column("quantity", "left", field="quantity"),
        Column("ours", field="ours", form=partial(_digits, places=4)),
    ]
    if frame["low"].notna().any():
        columns.append(Column("95 % interval", "left", cell=_ends))
    if frame["printed"].notna().any():
        columns += [
            Column("printed", field="printed", form=partial(_digits, places=6)),
            Column("where", "left", wraps=True, cell=_where),
        ]
    return Table.of(frame, columns, "Numbers", name="numbers")


def _ends(entry: Mapping[str, Any]) -> Cell:
    """Return the interval of a quantity that has one."""
    if pd.isna(entry["low"]):
        return EMPTY
    return words(_interval(Interval(entry["ours"], entry["low"], entry["high"], 0)))


def _where(entry: Mapping[str, Any]) -> Cell:
    """Return where a number is printed, and why it is not comparable if it is not."""
    if entry["where"] and entry["why_not"]:
        return words(f"{entry['where']} (not comparable: {entry['why_not']})")
    return words(entry["where"])
