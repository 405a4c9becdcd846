"""When layers differ measurably: one rule for the first lines of `profile`, `evaluate` and `select`."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

INTERVAL = 1.96
"""Standard errors to each side of a 95 % interval."""


def differs(difference: float, error: float) -> bool | None:
    """Return whether a difference exceeds its margin of error, 1.96 standard errors; None where that is not known.

    `error` is that of the difference: paired over samples, or of independent scores, which is too
    large for layers that were judged on the same samples and so rather finds no difference.

    >>> from layerscope.core.margin import differs
    >>> differs(0.05, 0.02), differs(0.03, 0.02), differs(0.03, float("nan"))
    (True, False, None)
    """
    return abs(difference) > INTERVAL * error + 1e-12 if math.isfinite(error) else None


def tied(layers: Sequence[int], within: Sequence[int], last: str) -> str:
    """Return which layers do not differ measurably from the last one, all or some of `layers`, in words.

    `within` are those, without the last, that are within the margin of the best; `last` is what the
    last is called.

    >>> from layerscope.core.margin import tied
    >>> tied([1, 2, 3], [1, 2], "the last layer")
    'no layer differs measurably; layers 1 and 2 are within the margin of the last layer'
    """
    verb = "is" if len(within) == 1 else "are"
    every = set(within) >= set(layers[:-1])
    lead = (
        "no layer differs measurably"
        if every
        else f"no layer is measurably better than {last}"
    )
    return f"{lead}; {named(within)} {verb} within the margin{f' of {last}' if every else ''}"


def named(layers: Sequence[int]) -> str:
    """Return `layer 3`, `layers 3 and 4`, `layers 3 to 5`, `layers 1, 3 and 4`."""
    if len(layers) == 1:
        return f"layer {layers[0]}"
    if len(layers) > 2 and layers[-1] - layers[0] == len(layers) - 1:
        return f"layers {layers[0]} to {layers[-1]}"
    return f"layers {', '.join(map(str, layers[:-1]))} and {layers[-1]}"


def error_of(values: NDArray[Any], groups: NDArray[Any] | None = None) -> float:
    """Return the standard error of the mean of values `[n]`; those of one group, numbered in `groups`, count together.

    Source: Cochran 1977, Sampling techniques, section 6.3, for the error of a ratio.
    """
    groups = np.arange(len(values)) if groups is None else groups
    sizes = np.bincount(groups)
    sums = np.bincount(groups, weights=values)
    m = len(sizes)
    return float(
        np.sqrt(m / (m - 1) * np.square(sums - values.mean() * sizes).sum())
        / len(values)
    )
