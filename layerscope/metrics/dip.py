from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.arrays import Array, as_finite64
from layerscope.metrics.metric import How, Metric, Needs

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class FromValues(How):
    """A number of the distribution that another metric of tokens has over the samples."""

    needs: ClassVar[Needs] = "tokens"
    compute: Callable[[Array], float]
    """Takes the values `[N]` of one layer."""
    of: str
    """The name of the other metric, which is measured with it."""


def dip(values: Array) -> float:
    """Return how far the distribution of `values` `[N]` is from every distribution with a single peak.

    It is the largest difference between their cumulative shares and those of the nearest
    distribution of one peak, a number from 1/(2N) to 1/4, two heaps far apart. Without a second
    peak it shrinks as N grows: of N uniform values one set in twenty is above 0.53/√N. Scale and
    offset do not matter, nor does skew.

    Raises `LayerscopeError` for an array of another shape.

    Source: Hartigan and Hartigan 1985, The dip test of unimodality; of entropies by layer Skean et
    al. 2024, Does
    Representation Matter?

    >>> two = np.concatenate([np.linspace(0, 1, 50), np.linspace(9, 10, 50)])
    >>> dip(two) > 0.2, dip(np.linspace(0, 1, 100)) < 0.01
    (True, True)
    """
    tensor = as_finite64(values, "values", 1)
    if tensor.ndim != 1:
        raise LayerscopeError(f"values has shape {tuple(tensor.shape)}: give one dimension")
    x, sizes = np.unique(tensor.cpu().numpy(), return_counts=True)
    above = sizes.cumsum() / len(tensor)
    below = above - sizes / len(tensor)
    low, high, distance = 0, len(x) - 1, 1 / len(tensor)
    while low < high:  # within low … high lies the peak: convex before it, concave after it
        part = slice(low, high + 1)
        convex, concave = _hull(x[part], below[part]), _hull(x[part], -above[part])
        under = np.interp(x[part], x[part][convex], below[part][convex])
        over = np.interp(x[part], x[part][concave], above[part][concave])
        apart = over - under
        knots = np.union1d(convex, concave)
        at = int(knots[apart[knots].argmax()])
        if apart[at] <= distance:
            break
        start, end = int(convex[convex <= at].max()), int(concave[concave >= at].min())
        distance = max(
            distance,
            (above[part] - under)[:start].max(initial=0),
            (over - below[part])[end + 1 :].max(initial=0),
        )
        if (start, end) == (0, high - low):
            break
        low, high = low + start, low + end
    return float(distance / 2)


def _hull(x: Numbers, y: Numbers) -> Numbers:
    """Return the indices of the corners of the largest convex function below points `[n]`."""
    corners: list[int] = []
    for i in range(len(x)):
        while len(corners) > 1:
            a, b = corners[-2:]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            corners.pop()
        corners.append(i)
    return np.array(corners)


ENTROPY_DIP = Metric(
    dip,
    FromValues(dip, "prompt_entropy"),
    name="entropy_dip",
    title="dip of prompt entropy",
    reading="high: entropies of samples have two peaks",
    formula="½ max |F − G| over entropies, F their cumulative distribution, G the nearest one of a single peak",
    meaning="Hartigan's dip of the samples' prompt entropies: how far their distribution is from any with a single "
    "peak, "
    "from 1/(2N) to 0.25. With a single peak, fewer than one set of N samples in twenty exceeds 0.53/√N.",
    direction="High: a layer sorts samples into two kinds, compressed and not. Short samples have low entropies too: "
    "two kinds of length are two peaks.",
)
