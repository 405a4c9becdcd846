"""Pictures of recipes: the common kinds of plot, made of series by layer."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.show import Axis, Bars, Chart, HeatMap, Series
from layerscope_papers.intervals import Interval

PERCENTILES = (5, 25, 50, 75, 95)


def file_name(title: str) -> str:
    """Return a title as the name of a file.

    >>> file_name("Prompt entropy by depth, WikiText")
    'prompt-entropy-by-depth-wikitext'
    """
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def chart(
    title: str, unit: str, curves: Mapping[str, pd.Series], by_depth: bool = False
) -> Chart:
    """Return curves by layer in one chart; with `by_depth` models of several depths lie over each other."""
    series = []
    for number, (name, curve) in enumerate(curves.items()):
        last = float(max(curve.index))
        x = tuple(
            100 * float(layer) / last if by_depth else float(layer)
            for layer in curve.index
        )
        y = tuple(map(float, curve))
        series.append(Series(name, x, y, tone=number))
    axis = Axis("depth [%]", (0.0, 100.0)) if by_depth else Axis("layer", whole=True)
    return Chart(
        title=title, x=axis, y=Axis(unit), series=tuple(series), name=file_name(title)
    )


def mean_chart(
    title: str, unit: str, curves: Mapping[str, Sequence[pd.Series]]
) -> Chart:
    """Return curves by layer, each the mean of several, in one chart."""
    return chart(
        title,
        unit,
        {name: pd.concat(of, axis=1).mean(axis=1) for name, of in curves.items()},
    )


def by_layer(values: npt.NDArray[np.float64], first: int) -> pd.Series:
    """Return values as a curve by layer.

    >>> by_layer(np.array([0.5, 1.0]), first=3).to_dict()
    {3: 0.5, 4: 1.0}
    """
    return pd.Series(values, index=range(first, first + len(values)))


def quantiles(
    title: str, unit: str, values: npt.NDArray[np.float64], first: int
) -> Chart:
    """Return how values `[samples, layers]` are spread at each layer: lines at some percentiles."""
    lines = {
        f"{percent} % of the samples": by_layer(
            np.percentile(values, percent, axis=0), first
        )
        for percent in PERCENTILES
    }
    return chart(title, unit, lines)


def bars(title: str, unit: str, intervals: Mapping[str, Interval]) -> Bars:
    """Return values by name with their intervals as bars."""
    return Bars(
        title=title,
        x=Axis(unit),
        rows=tuple(intervals),
        values=tuple(interval.value for interval in intervals.values()),
        low=tuple(interval.low for interval in intervals.values()),
        high=tuple(interval.high for interval in intervals.values()),
        name=file_name(title),
    )


def heat_map(title: str, table: pd.DataFrame, down: str, across: str) -> HeatMap:
    """Return a frame as a heat map on a scale of its own."""
    return HeatMap(
        title=title,
        rows=tuple(map(str, table.index)),
        columns=tuple(map(str, table.columns)),
        values=tuple(tuple(map(float, row)) for row in table.to_numpy()),
        low=None,
        high=None,
        down=down,
        across=across,
        name=file_name(title),
    )
