"""Spearman's correlation as a mean over samples, each with its influence on it."""

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def sum_up_to(values: Floats, weights: Floats) -> Floats:
    """Return for each value the sum of the weights of all that are not above it, `[n]`."""
    order = np.argsort(values)
    sums = np.concatenate([[0.0], np.cumsum(weights[order])])
    return np.asarray(sums[np.searchsorted(values[order], values, side="right")])


def spearman_by_sample(one: Floats, two: Floats) -> Floats:
    """Return values `[n]` with Spearman's correlation of one and two as their mean; of ties all have the mean rank."""
    n = len(one)

    def sum_above(values: Floats, weights: Floats) -> Floats:
        not_above = sum_up_to(values, weights)
        not_below = sum_up_to(-values, weights)
        return np.asarray(weights.sum() - not_above + not_below) / (2 * n)

    # their mean is 0
    ranks = [0.5 - sum_above(values, np.ones(n)) for values in (one, two)]
    x, y = ranks
    spreads = [float(rank @ rank) / n for rank in ranks]
    covariance = float(x @ y) / n
    # a sample raises the ranks of all above it
    moved = x * y + sum_above(one, y) + sum_above(two, x) - 3 * covariance
    spread_of_both = math.sqrt(spreads[0] * spreads[1])
    correlation = covariance / spread_of_both
    influence = moved / spread_of_both
    for values, rank, spread in zip((one, two), ranks, spreads, strict=True):
        moved = rank**2 + 2 * sum_above(values, rank) - 3 * spread
        influence -= correlation * moved / (2 * spread)
    return np.asarray(correlation + influence)
