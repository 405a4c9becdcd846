"""How scores are shown in texts and tables."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from layerscope.show.document import Cell

VARIANT = ("model", "revision", "site", "pooling")
"""What one set of scores by layer is about."""
SHIPPED = "as shipped"
"""What the row of a baseline is called."""


@dataclass(frozen=True)
class Unit:
    """How scores are shown: shares in percent, others in their own unit."""

    percent: bool
    decimals: int = 2

    @property
    def scale(self) -> float:
        """The factor from a score to what is shown."""
        return 100.0 if self.percent else 1.0

    @property
    def title(self) -> str:
        """The unit as a title ends."""
        return ", in %" if self.percent else ""

    def number(self, value: float, sign: bool = False) -> str:
        """Return a score as it stands in a table."""
        return decimal(self.scale * value, self.decimals, sign)

    def text(self, value: float, error: float | None = None) -> str:
        """Return a score, and its standard error where it is known, as a sentence has it.

        >>> Unit(percent=True).text(0.5, 0.01), Unit(percent=False).text(0.5)
        ('50.00 ±1.00 %', '0.50')
        """
        return f"{self.number(value)}{self._error(error)}{' %' if self.percent else ''}"

    def difference(self, value: float, error: float | None = None) -> str:
        """Return a difference of two scores, and its standard error, as a sentence has it: of two shares in points."""
        unit = " points" if self.percent else ""
        return f"{self.number(value, sign=True)}{self._error(error)}{unit}"

    def _error(self, error: float | None) -> str:
        if error is None or not math.isfinite(error):
            return ""
        return f" ±{self.number(error)}"

    def cell(
        self,
        value: float | None,
        error: float | None = None,
        sign: bool = False,
        detail: str = "",
    ) -> Cell:
        """Return a score as a cell, its standard error or another `detail` beside it; `–` where it is unknown."""
        if value is None or not math.isfinite(value):
            return Cell("–")
        if error is not None and math.isfinite(error):
            return Cell(
                self.number(value, sign),
                f"±{self.number(error)}",
                value,
                more=(("stderr", error),),
            )
        return Cell(self.number(value, sign), detail, value)


def decimal(value: float, decimals: int, sign: bool = False) -> str:
    """Return a number with a true minus, `–` where it is not finite; `sign` shows a plus too.

    >>> decimal(-0.5, 2), decimal(0.5, 1, sign=True), decimal(math.nan, 1)
    ('−0.50', '+0.5', '–')
    """
    if not math.isfinite(value):
        return "–"
    return f"{value:{'+' if sign else ''}.{decimals}f}".replace("-", "−")


def measured_name(about: Mapping[Any, Any]) -> str:
    """Return a metric's name with variant, site and pooling, those that are `raw` left out.

    >>> measured_name({"metric": "lidar", "variant": "q=3", "site": "raw", "pooling": "mean"})
    'lidar (q=3, mean)'
    """
    name = str(about["metric"])
    details = []
    for key in ("variant", "site", "pooling"):
        detail = about[key]
        if not pd.isna(detail) and detail != "raw":
            details.append(str(detail))
    if details:
        name += f" ({', '.join(details)})"
    return name
