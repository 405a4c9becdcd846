"""Series and shares drawn with characters."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

BLOCKS = "▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉"
SPARK_WIDTH = 16
BAR_WIDTH = 12


def spark(values: Iterable[float], log: bool = False) -> str:
    """Return a series as one line of blocks, its minimum the lowest and its maximum the highest.

    Values that are not finite are gaps; more than 16 values are averaged in neighbouring groups; a constant is a flat
    line.
    """
    series = np.array(list(values), dtype=np.float64)
    if log:
        series = np.log(np.where(series > 0, series, np.nan))
    series = np.where(np.isfinite(series), series, np.nan)
    if len(series) > SPARK_WIDTH:
        series = np.array([_mean(part) for part in np.array_split(series, SPARK_WIDTH)])
    known = series[~np.isnan(series)]
    if not len(known):
        return " " * len(series)
    low, span = float(known.min()), float(known.max() - known.min())
    top = len(BLOCKS) - 1
    heights = np.full(len(series), top / 2) if span == 0 else (series - low) / span * top
    heights = np.where(np.isnan(series), np.nan, heights)
    return "".join(" " if math.isnan(height) else BLOCKS[round(float(height))] for height in heights)


def bar(share: float, most: float = 1.0) -> str:
    """Return a share as a bar, which is 12 characters long for `most`."""
    eighths = round(8 * BAR_WIDTH * share / most) if most > 0 else 0
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def _mean(part: npt.NDArray[np.float64]) -> float:
    known = part[~np.isnan(part)]
    return float(known.mean()) if len(known) else math.nan
