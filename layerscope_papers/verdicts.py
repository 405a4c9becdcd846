"""Verdicts: a claim held, did not hold or is not decided, depending on where the interval of its statistic lies."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from layerscope_papers.intervals import FEWEST, LEVEL, Interval
from layerscope_papers.recipe import Claim

Word = Literal["held", "did not hold", "not decided", "not applicable"]
WORDS: tuple[Word, ...] = ("held", "did not hold", "not decided", "not applicable")
MANY = 10_000


@dataclass(frozen=True)
class Verdict:
    """A claim, the interval of its statistic, and the verdict.

    Attributes:
        claim: fixed before any result.
        interval: what was measured.
        word: the verdict.
        wants: what would decide a claim that is not decided, or make one applicable.

    """

    claim: Claim
    interval: Interval
    word: Word
    wants: str = ""


def decide(claim: Claim, interval: Interval, inapplicable: str = "") -> Verdict:
    """Return the verdict: an interval wholly beyond the threshold decides, one that straddles it does not.

    With a reason why the claim is `inapplicable`, the interval decides nothing.

    >>> claim = Claim("deep", "Deeper is better.", "gain in points", 0.0, "above", "seeds")
    >>> decide(claim, Interval(1.0, 0.5, 1.5, 5)).word, decide(claim, Interval(1.0, -0.5, 2.5, 5)).word
    ('held', 'not decided')
    """
    if inapplicable:
        return Verdict(claim, interval, "not applicable", inapplicable)
    beyond = interval.low > claim.threshold
    short = interval.high < claim.threshold
    if claim.direction == "below":
        beyond, short = short, beyond
    word: Word = "held" if beyond else "did not hold" if short else "not decided"
    return Verdict(
        claim, interval, word, _wants(claim, interval) if word == "not decided" else ""
    )


def overall(verdicts: tuple[Verdict, ...]) -> Word:
    """Return the verdict on all claims of a recipe that apply.

    It did not hold where one did not, and held where all did.
    """
    words = {verdict.word for verdict in verdicts} - {"not applicable"}
    if not words:
        return "not applicable"
    if "did not hold" in words:
        return "did not hold"
    return "held" if words == {"held"} else "not decided"


def _wants(claim: Claim, interval: Interval) -> str:
    if claim.decided_by:
        return claim.decided_by
    if interval.n < FEWEST:
        return f"at least {FEWEST} {claim.over}"
    needed = values_needed(interval, claim.threshold)
    if needed is None:
        return f"the statistic lies at its threshold: no feasible number of {claim.over} would decide it"
    return f"about {needed} {claim.over}, if the difference stays as it is"


def values_needed(interval: Interval, threshold: float) -> int | None:
    """Return over how many values the interval around the same value would leave a threshold out, None from MANY on.

    An interval narrows as values grow more by their root, and as Student's t does with fewer of them.

    >>> values_needed(Interval(1.0, -0.5, 2.5, 3), 0.0)  # one more than three values: t is 3.2 then, and no longer 4.3
    4
    """
    from scipy.stats import t

    n = np.arange(interval.n, MANY)
    narrower = t.ppf((1 + LEVEL) / 2, n - 1) / np.sqrt(n)
    reach = (interval.high - interval.low) / 2 * narrower / narrower[0]
    enough = n[1:][reach[1:] < abs(interval.value - threshold)]
    return int(enough[0]) if len(enough) else None
