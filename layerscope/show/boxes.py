"""From values to the box that stands for them."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.show.plain import plain
from layerscope.show.plots import Box

WHISKERS = (5, 95)
"""Percentiles between which the whiskers reach."""
OUTLIERS = 20
"""At most this many samples beyond the whiskers of a layer are kept by name, those below 0 and the furthest first."""


def box(name: str, values: npt.NDArray[np.float64], samples: Iterable[object]) -> Box:
    """Return a box of values, with the names of the samples below 0 and furthest from it."""
    low, first, median, third, high = np.percentile(
        values, (WHISKERS[0], 25, 50, 75, WHISKERS[1])
    ).tolist()
    far = pd.DataFrame(
        {
            "who": list(map(str, samples)),
            "value": values,
            "far": np.abs(values - median),
            "below": values < 0,
        }
    )
    far = far[(values < low) | (values > high)]
    far = far.sort_values(["below", "far"], ascending=False, kind="stable")[:OUTLIERS]
    outliers = tuple(zip(map(plain, far["who"]), far["value"].tolist(), strict=True))
    negative = int((values < 0).sum())
    return Box(
        name,
        (first, median, third),
        (low, high),
        float(values.mean()),
        len(values),
        outliers,
        negative,
    )
