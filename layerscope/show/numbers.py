"""Numbers as they are shown: significant digits, standard errors, shares; series and shares drawn with characters."""

import math
from collections.abc import Iterable

import numpy as np

NIL = 1e-9
"""A value or standard error below this is rounding, as of a layer's cosine to itself."""
BLOCKS = "▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉"
SPARK_WIDTH = 16
BAR_WIDTH = 12


def number(value: float, digits: int = 3) -> str:
    """Return a value with this many significant digits, `–` where it is not finite."""
    if not math.isfinite(value):
        return "–" if math.isnan(value) else str(value)
    size = abs(value)
    if size < NIL:
        return "0"
    shown = float(f"{size:.{digits - 1}e}")
    if shown >= 1e5 or shown < 1e-3:
        figures, power = f"{value:.{digits - 1}e}".split("e")
        return f"{figures}e{int(power)}"
    decimals = digits - 1 - math.floor(math.log10(shown))
    return f"{round(value, decimals):,.{max(0, decimals)}f}"


def apart(*values: float) -> int:
    """Return how many significant digits, at least three, make all different values look different."""
    known = {v for v in values if math.isfinite(v)}
    return next((d for d in range(3, 12) if len({number(v, d) for v in known}) == len(known)), 12)


def error(stderr: float) -> str:
    """Return `±` and a standard error with one significant digit (two after a 1); empty where it is unknown or nil."""
    if not math.isfinite(stderr) or stderr < NIL:
        return ""
    return f"±{number(stderr, 2 if f'{stderr:.1e}'.startswith('1') else 1)}"


def percent(share: float, digits: int = 1) -> str:
    """Return a share in percent, `–` where it is not finite."""
    return f"{100 * share:.{digits}f} %" if math.isfinite(share) else "–"


def times(factor: float) -> str:
    """Return a speed-up, `–` where it is not finite."""
    return f"{factor:.2f}×" if math.isfinite(factor) else "–"


def chance(probability: float) -> str:
    """Return a probability in percent, without decimals but where it is small."""
    return (
        f"{probability:.0%}"
        if probability >= 0.095 or probability < 0.0005
        else f"{probability:.1%}"
    )


def spark(values: Iterable[float], log: bool = False) -> str:
    """Return a series as one line of blocks, its minimum the lowest and its maximum the highest.

    Values that are not finite are gaps; more than 16 values are averaged in neighbouring groups; a
    constant is a flat line.
    """
    series = np.array(list(values), dtype=np.float64)
    if log:
        series = np.log(np.where(series > 0, series, np.nan))
    series = np.where(np.isfinite(series), series, np.nan)
    if len(series) > SPARK_WIDTH:
        parts = [part[~np.isnan(part)] for part in np.array_split(series, SPARK_WIDTH)]
        series = np.array([part.mean() if len(part) else math.nan for part in parts])
    known = series[~np.isnan(series)]
    if not len(known):
        return " " * len(series)
    low, span = float(known.min()), float(known.max() - known.min())
    top = len(BLOCKS) - 1
    heights = np.full(len(series), top / 2) if span == 0 else (series - low) / span * top
    heights = np.where(np.isnan(series), np.nan, heights)
    return "".join(
        " " if math.isnan(height) else BLOCKS[round(float(height))] for height in heights
    )


def bar(share: float, most: float = 1.0) -> str:
    """Return a share as a bar, which is 12 characters long for `most`."""
    eighths = round(8 * BAR_WIDTH * share / most) if most > 0 else 0
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()
