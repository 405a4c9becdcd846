"""How scores are shown in texts: their unit, layers in a row, correlations."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from layerscope.show.document import Cell

VARIANT = ("model", "revision", "site", "pooling")
"""What one set of scores by layer is about."""
SITE = ("site", "pooling")
SHIPPED = "as shipped"
"""What the row of a baseline is called."""
FEW = 3
"""Models that are named in one line, at most."""


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

    def text(self, value: float, error: float = math.nan) -> str:
        """Return a score, and its standard error where it is known, as a sentence has it."""
        shown = self.number(value) + (f" ±{self.number(error)}" if math.isfinite(error) else "")
        return f"{shown} %" if self.percent else shown

    def cell(
        self, value: float | None, error: float | None = None, sign: bool = False, detail: str = ""
    ) -> Cell:
        """Return a score as a cell, its standard error or another `detail` beside it; `–` where it is unknown."""
        if value is None:
            return Cell("–")
        detail = f"±{self.number(error)}" if error is not None and math.isfinite(error) else detail
        return Cell(self.number(value, sign), detail if math.isfinite(value) else "", value)

    def difference(self, value: float, error: float = math.nan) -> str:
        """Return a difference of two scores, and its standard error, as a sentence has it: of two shares in points."""
        shown = self.number(value, sign=True) + (
            f" ±{self.number(error)}" if math.isfinite(error) else ""
        )
        return shown + (" points" if self.percent else "")


def percents(scores: pd.DataFrame) -> Unit:
    """Return the unit of an evaluation's scores, which are shares where none is above 1."""
    return Unit(bool(scores["score"].abs().max() <= 1))


def decimal(value: float, decimals: int, sign: bool = False) -> str:
    """Return a number with a true minus, `–` where it is not finite; `sign` shows a plus too."""
    if not math.isfinite(value):
        return "–"
    return f"{value:{'+' if sign else ''}.{decimals}f}".replace("-", "−")


def measured_name(about: Mapping[str, Any]) -> str:
    """Return a metric's name with variant, site and pooling, those that are `raw` left out."""
    details = [about[key] for key in ("variant", "site", "pooling")]
    details = [str(detail) for detail in details if not pd.isna(detail) and detail != "raw"]
    return str(about["metric"]) + (f" ({', '.join(details)})" if details else "")


def signed(value: float) -> Cell:
    """Return a correlation as a cell."""
    return Cell(decimal(value, 2, sign=True), value=value)


def named_layers(layers: Sequence[int]) -> str:
    """Return which layers these are: `layers 0 to 3`, with gaps `layers 0 to 4, 6`, or `layer 6`."""
    if not len(layers):
        return "no layer"
    spans = np.split(layers, np.flatnonzero(np.diff(layers) != 1) + 1)
    parts = [
        f"{span[0]} to {span[-1]}" if len(span) > 2 else ", ".join(map(str, span)) for span in spans
    ]
    return f"layer{'s' * (len(layers) > 1)} {', '.join(parts)}"
