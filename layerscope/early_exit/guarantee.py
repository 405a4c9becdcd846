"""What early exits are to guarantee, and how many samples that takes: exact binomial tails, no approximation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom

from layerscope.core.errors import LayerscopeError
from layerscope.core.option_kinds import shown

FINEST = 1e-9
"""A goal's distance from 0 and 1 at least; no data set is large enough for less."""


@dataclass(frozen=True)
class Goal:
    """What is to hold with `confidence` (1 − δ): one of two bounds on the risk.

    `max_disagreement` (α) bounds the share of samples whose prediction differs from the full model's; `min_accuracy`
    the share that is predicted right, whose risk is 1 − accuracy. Each is above 0 and below 1, by
    1e-9 at least; raises `LayerscopeError` for other values, and for both or none.
    """

    max_disagreement: float | None = None
    min_accuracy: float | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if (self.max_disagreement is None) == (self.min_accuracy is None):
            given = "neither is" if self.min_accuracy is None else "both are"
            raise LayerscopeError(f"give one of max_disagreement and min_accuracy: {given} given")
        for name, such in (("max_disagreement", 0.01), ("min_accuracy", 0.9), ("confidence", 0.95)):
            value = getattr(self, name)
            if value is not None or name == "confidence":
                object.__setattr__(self, name, _share(name, value, such))

    @property
    def risk(self) -> float:
        """The largest share of errors that meets the goal."""
        if self.max_disagreement is not None:
            return self.max_disagreement
        assert self.min_accuracy is not None
        return 1 - self.min_accuracy

    @property
    def delta(self) -> float:
        """δ, the chance that the guarantee may fail by."""
        return 1 - self.confidence

    @property
    def told(self) -> str:
        """The goal as it was asked for."""
        asked = "min_accuracy" if self.max_disagreement is None else "max_disagreement"
        return f"{asked} {getattr(self, asked):g} with {percent(self.confidence)} confidence"


def least_samples(goal: Goal) -> int:
    """Return the least n with which a threshold that exits can be certified, by no error: (1 − risk)ⁿ ≤ δ."""
    n = max(1, math.ceil(math.log(goal.delta) / math.log1p(-goal.risk)) - 1)
    while p_value(0, n, goal.risk) > goal.delta:  # the logarithms may round to either side
        n += 1
    return n


def check_enough(n: int, goal: Goal) -> None:
    """Raise `LayerscopeError` where `n` samples cannot certify any threshold that exits, with how many can."""
    least = least_samples(goal)
    if n < least:
        raise LayerscopeError(f"{goal.told} needs {least:,} samples at least, and there are {n:,}: give more")


def p_value(errors: ArrayLike, n: int, risk: float) -> NDArray[np.float64]:
    """Return P(Bin(n, risk) ≤ errors): the p-value of "the risk is larger" where so many errors are seen."""
    return np.asarray(binom.cdf(errors, n, risk), dtype=np.float64)


def upper_bound(errors: int, n: int, confidence: float) -> float:
    """Return the one-sided Clopper–Pearson upper bound of a risk of which `errors` were seen in `n`."""
    return 1.0 if errors >= n else float(beta.ppf(confidence, errors + 1, n - errors))


def split(n: int, goal: Goal, share: float = 0.2, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows that choose exits and criterion, a `share` of `n`, and the others, which are tested.

    Both ascending, disjoint, and fixed by the seed. Raises `LayerscopeError` where fewer would be tested than the goal
    needs.
    """
    share, least = _share("share", share, 0.2), least_samples(goal)
    tested = n - math.ceil(n * share)
    if tested < least:
        needed = math.ceil(least / (1 - share)) - 1
        while needed - math.ceil(needed * share) < least:
            needed += 1
        raise LayerscopeError(
            f"of {n:,} samples {tested:,} would be tested, and {goal.told} needs {least:,}: give {needed:,} in all"
        )
    rows = np.random.default_rng(seed).permutation(n).astype(np.int64)
    return np.sort(rows[: n - tested]), np.sort(rows[n - tested :])


def percent(share: float) -> str:
    """Return a share in words, such as "1 %"."""
    return f"{100 * share:.6g} %"


def _share(name: str, value: object, such: float) -> float:
    known = isinstance(value, Real) and not isinstance(value, bool)
    if not known or not FINEST <= float(value) <= 1 - FINEST:  # type: ignore[arg-type]
        raise LayerscopeError(f"{name} is {shown(value)}: give a number between 0 and 1, such as {such}")
    return float(value)  # type: ignore[arg-type]
