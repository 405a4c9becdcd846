"""The intervals that decide: of means over seeds, texts or models, paired or not, of slopes and curves."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

FEWEST = 3
"""Fewer values than this decide nothing."""
LEVEL = 0.95
RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """A statistic and its 95 % interval.

    Attributes:
        value: the statistic.
        low: lower end, NaN where there are too few values.
        high: upper end, NaN where there are too few values.
        n: values that the interval is over.

    """

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


def mean(values: npt.ArrayLike) -> Interval:
    """Return the mean of independent values with Student's t interval.

    >>> found = mean([1.0, 2.0, 3.0])
    >>> round(found.low, 2), round(found.high, 2)
    (-0.48, 4.48)
    """
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return Interval(math.nan, math.nan, math.nan, 0)
    value = float(finite.mean())
    n = len(finite)
    if n < FEWEST:
        return Interval(value, math.nan, math.nan, n)
    error = float(finite.std(ddof=1)) / math.sqrt(n)
    return _around(value, error, freedom=n - 1, n=n)


def _around(value: float, error: float, *, freedom: int, n: int) -> Interval:
    """Return Student's t interval around an estimate with a standard error."""
    from scipy.stats import t

    reach = float(t.ppf((1 + LEVEL) / 2, freedom)) * error
    return Interval(value, value - reach, value + reach, n)


def paired(one: Iterable[float], other: Iterable[float]) -> Interval:
    """Return the mean difference of pairs, one minus the other, with its interval.

    >>> paired([3.0, 5.0, 4.0], [1.0, 3.0, 2.0])
    Interval(value=2.0, low=2.0, high=2.0, n=3)
    """
    return mean([float(a - b) for a, b in zip(one, other, strict=True)])


def unpaired(one: Sequence[float], other: Sequence[float]) -> Interval:
    """Return the difference of two means, one minus the other, with an interval over independent values of each.

    Student's t has the freedom of the fewer values, so that the interval is no narrower than Welch's.

    >>> interval = unpaired([3.0, 5.0, 4.0], [1.0, 3.0, 2.0, 2.0])
    >>> round(interval.low, 2), interval.value, interval.n
    (-1.04, 2.0, 3)
    """
    n = min(len(one), len(other))
    value = float(np.mean(one) - np.mean(other))
    if n < FEWEST:
        return Interval(value, math.nan, math.nan, n)
    squared = sum(np.var(values, ddof=1) / len(values) for values in (one, other))
    return _around(value, math.sqrt(squared), freedom=n - 1, n=n)


def slope(x: Sequence[float], y: Sequence[float]) -> Interval:
    """Return the slope of a straight line through points with Student's t interval.

    >>> slope([1, 2, 3, 4], [2.0, 4.1, 5.9, 8.0]).low > 1.5
    True
    """
    from scipy.stats import linregress

    n = len(x)
    if n < FEWEST:
        return Interval(math.nan, math.nan, math.nan, n)
    line = linregress(x, y)
    return _around(float(line.slope), float(line.stderr), freedom=n - 2, n=n)


def bootstrap(
    rows: npt.NDArray[np.float64],
    statistic: Callable[[npt.NDArray[np.float64]], Any],
    seed: int = 0,
) -> Interval:
    """Return a statistic of rows `[n, …]` with the percentile interval over resampled rows.

    >>> bootstrap(np.array([1.0, 1.0, 1.0, 1.0]), np.mean)
    Interval(value=1.0, low=1.0, high=1.0, n=4)
    """
    if len(rows) < FEWEST:
        return Interval(float(statistic(rows)), math.nan, math.nan, len(rows))
    draws = np.random.default_rng(seed)
    statistics = [
        float(statistic(rows[draws.integers(len(rows), size=len(rows))]))
        for _ in range(RESAMPLES)
    ]
    low, high = np.nanquantile(statistics, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(statistic(rows)), float(low), float(high), len(rows))


def early(curve: pd.Series) -> float:
    """Return the mean of a curve by layer over the layers before the last.

    >>> early(pd.Series([1.0, 2.0, 9.0]))
    1.5
    """
    return float(curve.iloc[:-1].mean())


def before_last(curves: Iterable[pd.Series]) -> Interval:
    """Return the mean of curves by layer over the layers before the last, with its interval over curves.

    >>> before_last([pd.Series([1.0, 2.0]), pd.Series([3.0, 4.0])]).value
    2.0
    """
    return mean(list(map(early, curves)))


def at_last(curves: Iterable[pd.Series]) -> Interval:
    """Return the mean of curves by layer at the last layer, with its interval over curves.

    >>> at_last([pd.Series([1.0, 2.0]), pd.Series([3.0, 4.0])]).value
    3.0
    """
    return mean([float(curve.iloc[-1]) for curve in curves])
