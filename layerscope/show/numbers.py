"""Numbers as they are shown: significant digits, standard errors, shares."""

import math

NIL = 1e-9
"""A value or standard error below this is rounding, as of a layer's cosine to itself."""


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


def amount(size: int) -> str:
    """Return bytes as a person reads them."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
