"""Intervals that a verdict rests on, over seeds, samples, tasks or models."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

FEWEST = 3
"""Fewer values than this decide nothing."""
LEVEL = 0.95
RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """A statistic and its 95 % interval over `n` values; the ends are NaN where there are too few."""

    value: float
    low: float
    high: float
    n: int


def exact(value: float) -> Interval:
    """Return a number that is computed, and not estimated.

    >>> exact(0.5)
    Interval(value=0.5, low=0.5, high=0.5, n=1)
    """
    return Interval(float(value), float(value), float(value), 1)


def mean(values: Sequence[float]) -> Interval:
    """Return the mean of independent values with Student's t interval.

    >>> found = mean([1.0, 2.0, 3.0])
    >>> round(found.low, 2), round(found.high, 2)
    (-0.48, 4.48)
    """
    from scipy.stats import t

    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    if not len(known):
        return Interval(math.nan, math.nan, math.nan, 0)
    if len(known) < FEWEST:
        return Interval(float(known.mean()), math.nan, math.nan, len(known))
    reach = t.ppf((1 + LEVEL) / 2, len(known) - 1) * known.std(ddof=1) / math.sqrt(len(known))
    return Interval(float(known.mean()), float(known.mean() - reach), float(known.mean() + reach), len(known))


def paired(one: Iterable[float], other: Iterable[float]) -> Interval:
    """Return the mean difference of pairs, one minus the other, with its interval."""
    return mean([float(a - b) for a, b in zip(one, other, strict=True)])


def share(count: int, n: int) -> Interval:
    """Return a share of independent samples with Wilson's interval.

    >>> found = share(9, 10)
    >>> round(found.low, 2), round(found.high, 2)
    (0.6, 0.98)
    """
    from scipy.stats import binomtest

    if n < FEWEST:
        return Interval(count / n if n else math.nan, math.nan, math.nan, n)
    ends = binomtest(count, n).proportion_ci(LEVEL, method="wilson")
    return Interval(count / n, float(ends.low), float(ends.high), n)


def slope(x: Sequence[float], y: Sequence[float]) -> Interval:
    """Return the slope of a straight line through points with Student's t interval.

    >>> slope([1, 2, 3, 4], [2.0, 4.1, 5.9, 8.0]).low > 1.5
    True
    """
    from scipy.stats import linregress, t

    if len(x) < FEWEST:
        return Interval(math.nan, math.nan, math.nan, len(x))
    line = linregress(x, y)
    reach = t.ppf((1 + LEVEL) / 2, len(x) - 2) * line.stderr
    return Interval(float(line.slope), float(line.slope - reach), float(line.slope + reach), len(x))


def bootstrap(
    rows: npt.NDArray[np.float64], statistic: Callable[[npt.NDArray[np.float64]], Any], seed: int = 0
) -> Interval:
    """Return a statistic of rows `[n, …]` with the percentile interval over resampled rows."""
    if len(rows) < FEWEST:
        return Interval(float(statistic(rows)), math.nan, math.nan, len(rows))
    draws = np.random.default_rng(seed)
    found = [float(statistic(rows[draws.integers(len(rows), size=len(rows))])) for _ in range(RESAMPLES)]
    low, high = np.nanquantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(statistic(rows)), float(low), float(high), len(rows))
