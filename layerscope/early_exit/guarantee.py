"""What early exits are to guarantee, and how many samples that takes: exact binomial tails, no approximation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom

from layerscope.core.errors import LayerscopeError
from layerscope.core.option_kinds import Number, shown

FINEST = 1e-9
"""A goal's distance from 0 and 1 at least; no data set is large enough for less."""
DESIGN = 0.2
"""The share of the samples that chooses exits; the others are tested."""


@dataclass(frozen=True)
class Goal:
    """What is to hold with `confidence` (1 − δ): one of two bounds on the risk.

    `max_disagreement` (α) bounds the share of samples whose prediction differs from the full model's, 0.01 where
    nothing is given; `min_accuracy` bounds the share that is predicted right, whose risk is 1 − accuracy. Each is above
    0 and below 1, by 1e-9 at least; raises `LayerscopeError` for other values, and for both.
    """

    max_disagreement: float | None = None
    min_accuracy: float | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.max_disagreement is not None and self.min_accuracy is not None:
            raise LayerscopeError("max_disagreement and min_accuracy are two goals: give one of them")
        if self.max_disagreement is None and self.min_accuracy is None:
            object.__setattr__(self, "max_disagreement", 0.01)
        for name, example in ((self._bound, 0.01 if self.min_accuracy is None else 0.9), ("confidence", 0.95)):
            value = getattr(self, name)
            if not Number(FINEST, 1 - FINEST).fits(value):
                raise LayerscopeError(f"{name} is {shown(value)}: give a number between 0 and 1, such as {example}")
            object.__setattr__(self, name, float(value))

    @property
    def _bound(self) -> str:
        return "max_disagreement" if self.min_accuracy is None else "min_accuracy"

    @property
    def risk(self) -> float:
        """The largest share of errors that meets the goal."""
        bound: float = getattr(self, self._bound)
        return bound if self.min_accuracy is None else 1 - bound

    @property
    def delta(self) -> float:
        """δ, the chance that the guarantee may fail by."""
        return 1 - self.confidence

    def __str__(self) -> str:
        return f"{self._bound} {getattr(self, self._bound):g} with {percent(self.confidence)} confidence"


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
        raise LayerscopeError(f"{goal} needs {least:,} samples at least, and there are {n:,}: give more")


def p_value(errors: ArrayLike, n: int, risk: float) -> NDArray[np.float64]:
    """Return P(Bin(n, risk) ≤ errors): how likely it is to see so few errors where the risk is larger."""
    return np.asarray(binom.cdf(errors, n, risk), dtype=np.float64)


def upper_bound(errors: int, n: int, confidence: float) -> float:
    """Return the one-sided Clopper–Pearson upper bound of a risk of which `errors` were seen in `n`."""
    return 1.0 if errors >= n else float(beta.ppf(confidence, errors + 1, n - errors))


def split(n: int, goal: Goal, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows that choose exits and criterion, a fifth of `n`, and the others, which are tested.

    Both ascending, disjoint, and fixed by the seed. Raises `LayerscopeError` where fewer would be tested than the goal
    needs.
    """
    least, tested = least_samples(goal), n - math.ceil(n * DESIGN)
    if tested < least:
        needed = math.ceil(least / (1 - DESIGN)) - 1
        while needed - math.ceil(needed * DESIGN) < least:
            needed += 1
        raise LayerscopeError(
            f"of {n:,} samples {tested:,} would be tested, and {goal} needs {least:,}: give {needed:,} in all"
        )
    rows = np.random.default_rng(seed).permutation(n).astype(np.int64)
    return np.sort(rows[: n - tested]), np.sort(rows[n - tested :])


def percent(share: float) -> str:
    """Return a share in words, such as "1 %"."""
    return f"{100 * share:.6g} %"
