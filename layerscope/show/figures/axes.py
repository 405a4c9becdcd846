"""Axes and marks that figures share: ticks of layers, logarithms, no magnified rounding; rings and diamonds."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from layerscope.show.figures import style
from layerscope.show.numbers import NIL
from layerscope.show.plots import Axis

Values = npt.NDArray[np.float64]
STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 50, 100, 200, 500, 1000)
MARKED = 16
"""Lines of more points than this carry about as many markers."""
MANY = 1000
"""An axis of whole numbers beyond this counts something other than layers."""


def mark_layers(axis: Any, end: int, most: int, first: int = 0) -> None:
    """Set the ticks of a horizontal axis that ends at a layer or at 100 %: at most so many steps."""
    step = layer_step(end, most)
    axis.set_xticks([tick for tick in range(0, end + 1, step) if tick >= first])
    room = max(0.5, 0.05 * end)
    axis.set_xlim(first - room, end + room)


def layer_step(depth: int, most: int) -> int:
    """Return how many layers apart ticks are: where it can be, so that the last layer has one."""
    enough = [step for step in STEPS if depth / step <= most]
    even = [step for step in enough if depth % step == 0 and depth / step >= 3]
    return even[0] if even else next((step for step in enough if step in (1, 2, 5, 10, 20, 50)), enough[0])


def name_columns(names: list[str], most: int) -> tuple[list[float], list[str]]:
    """Return where names of rows or columns stand and which: at most about so many, the last one among them."""
    numbered = [i for i, name in enumerate(names) if name.isdigit()] or list(range(len(names)))
    step = layer_step(max(1, numbered[-1]), most)
    kept = [i for i in numbered if i % step == 0]
    if len(names) > len(numbered):  # what follows the final norm has the last place
        kept = [i for i in kept if i + step <= len(names)] + [len(names) - 1]
    return [i + 0.5 for i in kept], [names[i] for i in kept]


def scale(axis: Any, values: Values, about: Axis) -> None:
    """Set the vertical axis: logarithmic where only that shows a shape, and long enough that noise looks like noise."""
    values = values[np.isfinite(values)]
    if not len(values):
        axis.text(0.5, 0.5, "no value", transform=axis.transAxes, ha="center", va="center", color="#777777")
        axis.yaxis.set_major_locator(NullLocator())
        return
    if about.log and values.min() > 0:
        axis.set_yscale("log")
        wide = values.max() / values.min()
        steps = (1.0, 2.0, 5.0) if wide < 30 else (1.0, 3.0) if wide < 1000 else (1.0,)
        axis.yaxis.set_major_locator(LogLocator(subs=steps))
        axis.yaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_formatter(FuncFormatter(partial(_tick, digits=3)))
        return
    least = max(about.least * about.scale, 1e-4 * float(np.abs(values).max()))
    if about.range is not None:
        axis.set_ylim(*about.range)
    elif values.max() - values.min() < least:
        middle = float(values.max() + values.min()) / 2
        axis.set_ylim(middle - least / 2, middle + least / 2)
    axis.yaxis.set_major_formatter(FuncFormatter(_tick))


def marked(values: Values, number: int) -> list[int]:
    """Return where a line carries markers: not everywhere where it is long, but at each value without neighbours."""
    step = -(-len(values) // MARKED)
    there = np.isfinite(np.concatenate([[np.nan], values, [np.nan]]))
    single = there[1:-1] & ~there[:-2] & ~there[2:]
    return sorted({*range((2 * number) % step, len(values), step), *np.flatnonzero(single).tolist()})


def ring() -> dict[str, Any]:
    """Return how a point that stands out is marked."""
    return {
        "marker": "o", "markersize": 6.5, "mfc": "none", "mec": style.DARK, "mew": 0.8, "linestyle": "none",
        "clip_on": False,
    }  # fmt: skip


def diamond(color: str) -> dict[str, Any]:
    """Return how a point that follows the line is marked."""
    return {"marker": "D", "markersize": 4, "mfc": "white", "mec": color, "linestyle": "none"}


def _tick(value: float, number: int, digits: int = 6) -> str:
    value = 0.0 if abs(value) < NIL else value
    shown, _, power = f"{value:.{digits}g}".partition("e")
    return (f"{shown}e{int(power)}" if power else shown).replace("-", "−")
