"""One run among those of a figure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from layerscope.reports.boxes import Box, boxes, boxes_pooling
from layerscope.runs.curves import Curve, Values
from layerscope.runs.registry import rank
from layerscope.runs.run import Run

Key = tuple[str, str | None]
"""Metric and variant: what one panel shows."""


@dataclass(frozen=True)
class Member:
    """A run, what it is called, its place among the others, and its curves by panel."""

    run: Run
    name: str
    number: int
    alone: bool
    panels: dict[Key, list[Curve]]

    def x(self, layers: Iterable[int]) -> Values:
        """Return where layers stand: at their number where the run is alone, else at their depth in percent."""
        places = np.array(list(layers), dtype=np.float64)
        return places if self.alone else 100 * places / self.run.depth

    def of(self, metric: str) -> list[Curve]:
        """Return the curves of a metric, all variants and poolings."""
        return [curve for (name, _), found in self.panels.items() for curve in found if name == metric]

    @cached_property
    def boxes(self) -> list[Box]:
        """Return a box of each sample's cosine to the last layer by layer; empty where no pairs were compared."""
        return boxes(self.run)

    @cached_property
    def boxes_pooling(self) -> str | None:
        """Return which vector of a sample the boxes are about."""
        return boxes_pooling(self.run)


def keys(members: Iterable[Member]) -> list[Key]:
    """Return what the runs have a panel for, in the order of the registry."""
    found = dict.fromkeys(key for member in members for key in member.panels)
    return sorted(found, key=lambda key: rank(key[0]))


def sheet_title(members: list[Member]) -> str:
    """Return model and data of one run; of several the data they share, as the legend has their names."""
    data = {str(member.run.info["data"]["name"]) for member in members}
    if members[0].alone:
        return f"{members[0].name} on {data.pop()}"
    return data.pop() if len(data) == 1 else ""
