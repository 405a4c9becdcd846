"""Curves by layer, of one run or of several by depth in percent."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from layerscope.reports.figures.member import Key, Member, sheet_title
from layerscope.runs.curves import Curve, Values
from layerscope.runs.titles import titled
from layerscope.show.figures import style
from layerscope.show.numbers import NIL
from layerscope.show.plain import plain, pooling_name

BAND = 0.2
STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 50, 100, 200, 500, 1000)
MARKED = 16
"""Lines of more layers than this carry about as many markers."""


def draw_curves(members: list[Member], shown: list[Key], width: float) -> Any:
    """Return a figure of small multiples: metrics by layer, with bands of one standard error."""
    most = 2 if style.is_narrow(width) else 3
    columns = 2 if len(shown) == 4 else min(most, len(shown))
    height = 1.75 if len(shown) == 1 else 1.45 if most == 3 else 1.3
    figure, axes = style.sheet(width, len(shown), columns, height, sheet_title(members))
    drawn = [curve for member in members for key in shown for curve in member.panels.get(key, [])]
    kinds = kinds_of(members)
    for axis, key in zip(axes, shown, strict=True):
        lines = [(member, curve) for member in members for curve in member.panels.get(key, [])]
        draw_panel(axis, lines, kinds, several=sum(metric == key[0] for metric, _ in shown) > 1)
        mark_layers(axis, members[0].run.depth if members[0].alone else 100, most=8 if width / columns > 2 else 5)
    style.label_below(axes, columns, "layer" if members[0].alone else "depth (%)")
    there = [member for member in members if any(member.panels.get(key) for key in shown)]
    style.explain(figure, _handles(there, drawn, kinds))
    return style.finish(figure)


def draw_panel(axis: Any, lines: list[tuple[Member, Curve]], kinds: list[str | None], several: bool) -> None:
    """Draw curves of one metric into a panel and name it; `several`: other panels show other variants of it."""
    for member, curve in lines:
        _line(axis, member, curve, _look(member, curve, kinds))
    curve = lines[0][1]
    title = plain(titled(curve.metric))
    if several and curve.variant:
        title += f" ({plain(curve.variant).replace(',', ', ')})"
    axis.set_title(title)
    axis.set_ylabel(curve.unit)
    values = np.concatenate([_finite(c) for _, c in lines])
    _scale(axis, values[np.isfinite(values)], log=curve.log)


def mark_layers(axis: Any, end: int, most: int, first: int = 0) -> None:
    """Set the ticks of a horizontal axis that ends at a layer or at 100 %: at most so many steps."""
    step = layer_step(end, most)
    axis.set_xticks([place for place in range(0, end + 1, step) if place >= first])
    room = max(0.5, 0.05 * end)
    axis.set_xlim(first - room, end + room)


def layer_step(depth: int, most: int) -> int:
    """Return how many layers apart ticks are: where it can be, so that the last layer has one."""
    enough = [step for step in STEPS if depth / step <= most]
    even = [step for step in enough if depth % step == 0 and depth / step >= 3]
    return even[0] if even else next((step for step in enough if step in (1, 2, 5, 10, 20, 50)), enough[0])


def kinds_of(members: list[Member]) -> list[str | None]:
    """Return the poolings of runs where there are several, in one order for all figures; first what is by token."""
    found = dict.fromkeys(c.pooling for m in members for curves in m.panels.values() for c in curves)
    named = [p for p in found if p is not None]
    by_token: list[str | None] = [None] if None in found and len(named) > 1 else []
    return [*by_token, *named]


def _look(member: Member, curve: Curve, kinds: list[str | None]) -> dict[str, Any]:
    """Return how a line looks: lines of one run differ by pooling; those of several by run, and markers by pooling."""
    kind = kinds.index(curve.pooling) if curve.pooling in kinds else 0
    return style.look(kind) if member.alone else style.look(member.number) | _fill(kind, member.number)


def _fill(kind: int, number: int) -> dict[str, Any]:
    """Return how the markers of a pooling are filled."""
    fill = style.FILLS[kind % len(style.FILLS)]
    if fill == "none":  # white, so that the line does not cross it
        return {"markerfacecolor": "white", "linewidth": 0.8}
    color = style.look(number)["color"]
    how = {"fillstyle": fill, "markerfacecolor": color, "markerfacecoloralt": "white"}
    return how | ({"linewidth": 0.8} if kind else {})


def _line(axis: Any, member: Member, curve: Curve, how: dict[str, Any]) -> None:
    x, values = member.x(curve.layers), _finite(curve)
    band = np.nan_to_num(curve.stderr) * curve.scale
    axis.plot(x, values, markevery=marked(values, member.number), **how)
    low = np.maximum(values - band, values / 2) if curve.log else values - band
    axis.fill_between(x, low, values + band, color=how["color"], alpha=BAND, linewidth=0)
    if curve.final is not None:
        axis.plot(x[-1], curve.final * curve.scale, **_diamond(how["color"]))
    if curve.stands_out is not None:
        axis.plot(member.x([curve.stands_out]), curve.at(curve.stands_out)[0] * curve.scale, **ring())


def _finite(curve: Curve) -> Values:
    """Return a curve's values in its unit, NaN where they are not finite and nothing where they are rounding."""
    values = np.where(np.abs(curve.values) < NIL, 0.0, curve.values)
    return np.where(np.isfinite(values), values * curve.scale, np.nan)


def marked(values: Values, number: int) -> list[int]:
    """Return where a line carries markers: not everywhere where it is long, but at each value without neighbours."""
    step = -(-len(values) // MARKED)
    there = np.isfinite(np.concatenate([[np.nan], values, [np.nan]]))
    single = there[1:-1] & ~there[:-2] & ~there[2:]
    return sorted({*range((2 * number) % step, len(values), step), *np.flatnonzero(single).tolist()})


def _scale(axis: Any, values: Values, log: bool) -> None:
    """Set the vertical axis: logarithmic where only that shows a shape, and no magnified rounding."""
    if not len(values):
        axis.text(0.5, 0.5, "no value", transform=axis.transAxes, ha="center", va="center", color="#777777")
        axis.yaxis.set_major_locator(NullLocator())
        return
    if log and values.min() > 0:
        axis.set_yscale("log")
        wide = values.max() / values.min()
        steps = (1.0, 2.0, 5.0) if wide < 30 else (1.0, 3.0) if wide < 1000 else (1.0,)
        axis.yaxis.set_major_locator(LogLocator(subs=steps))
        axis.yaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_formatter(FuncFormatter(partial(_tick, digits=3)))
        return
    low, high = axis.get_ylim()
    if high - low < 1e-4 * np.abs(values).max():
        middle = float(np.median(values))
        axis.set_ylim(middle - 0.05 * abs(middle), middle + 0.05 * abs(middle))
    axis.yaxis.set_major_formatter(FuncFormatter(_tick))


def _tick(value: float, place: int, digits: int = 6) -> str:
    value = 0.0 if abs(value) < NIL else value
    number, _, power = f"{value:.{digits}g}".partition("e")
    return (f"{number}e{int(power)}" if power else number).replace("-", "−")


def ring() -> dict[str, Any]:
    """Return how a layer that stands out is marked."""
    return {
        "marker": "o",
        "markersize": 6.5,
        "mfc": "none",
        "mec": style.DARK,
        "mew": 0.8,
        "linestyle": "none",
        "clip_on": False,
    }


def _diamond(color: str) -> dict[str, Any]:
    return {"marker": "D", "markersize": 4, "mfc": "white", "mec": color, "linestyle": "none"}


def _handles(members: list[Member], drawn: list[Curve], kinds: list[str | None]) -> list[Any]:
    """Return what the legend has: runs, poolings, band, ring and diamond, each where it is there."""
    handles: list[Any] = []
    if not members[0].alone:
        handles += [Line2D([], [], label=member.name, **style.look(member.number)) for member in members]
    if len(kinds) > 1:
        for i, kind in enumerate(kinds):
            if not any(curve.pooling == kind for curve in drawn):
                continue
            grey = {"color": "#777777", "marker": "o", "linestyle": "none"} | _fill(i, 0)
            how = style.look(i) if members[0].alone else grey | {"markerfacecolor": "#777777" if i != 1 else "white"}
            handles.append(Line2D([], [], label=pooling_name(kind), **how))
    shade = style.COLORS[0] if members[0].alone else "#777777"
    if any(np.isfinite(c.stderr).any() for c in drawn):
        handles.append(Patch(color=shade, alpha=BAND, linewidth=0, label="± one standard error"))
    if any(c.stands_out is not None for c in drawn):
        handles.append(Line2D([], [], label="layer that stands out", **ring()))
    if any(c.final is not None for c in drawn):
        handles.append(Line2D([], [], label="after the final norm", **_diamond(shade)))
    return handles
