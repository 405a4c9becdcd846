"""What scores are called in texts: models among several, sites, layers, and the unit of the numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from layerscope.show.document import Cell
from layerscope.show.plain import plain, pooling_name

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

    def difference(self, value: float) -> str:
        """Return a difference of two scores as a sentence has it: of two shares in points."""
        return self.number(value, sign=True) + (" points" if self.percent else "")


def percents(scores: pd.DataFrame) -> Unit:
    """Return the unit of an evaluation's scores, which are shares where none is above 1."""
    return Unit(bool(scores["score"].abs().max() <= 1))


def decimal(value: float, decimals: int, sign: bool = False) -> str:
    """Return a number with a true minus, `–` where it is not finite; `sign` shows a plus too."""
    if not math.isfinite(value):
        return "–"
    return f"{value:{'+' if sign else ''}.{decimals}f}".replace("-", "−")


def signed(value: float) -> Cell:
    """Return a correlation as a cell."""
    return Cell(decimal(value, 2, sign=True), value=value)


def named_layers(layers: Sequence[int]) -> str:
    """Return which layers these are: `layers 0 to 3`, with gaps `layers 0 to 4, 6`, or `layer 6`."""
    spans: list[list[int]] = []
    for layer in layers:
        if spans and layer == spans[-1][-1] + 1:
            spans[-1].append(layer)
        else:
            spans.append([layer])
    parts = [f"{span[0]} to {span[-1]}" if len(span) > 2 else ", ".join(map(str, span)) for span in spans]
    return f"layer{'s' * (len(layers) > 1)} {', '.join(parts)}" if layers else "no layer"


def site_name(about: Any, scores: pd.DataFrame) -> str:
    """Return site and pooling where the evaluation has several; empty where all layers share them."""
    return plain(" ".join(sites(about, scores, several=True)))


def sites(about: Any, scores: pd.DataFrame, several: bool) -> list[str]:
    """Return the names of site and pooling, each where layers have several, or where they have one."""
    layers = scores[scores["kind"] == "layer"]
    keys = [key for key in SITE if (layers[key].nunique(dropna=False) > 1) == several and not pd.isna(about[key])]
    return [pooling_name(about[key]) if key == "pooling" else str(about[key]) for key in keys]


def series_name(about: dict[str, Any], scores: pd.DataFrame) -> str:
    """Return a model's name, with revision, site and pooling where the evaluation has several."""
    model, revision = str(about["model"]), str(about["revision"])
    if scores.loc[(scores["kind"] == "layer") & (scores["model"] == model), "revision"].nunique() > 1:
        model += f"@{revision[:7] if re.fullmatch('[0-9a-f]{40}', revision) else revision}"
    return f"{plain(model)} {site_name(about, scores)}".strip()


def one_model(scores: pd.DataFrame) -> bool:
    """Return whether all layers are of one model and revision."""
    return len(scores.loc[scores["kind"] == "layer", ["model", "revision"]].drop_duplicates()) == 1
