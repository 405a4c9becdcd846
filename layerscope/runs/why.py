"""Why there is a valley, and which blocks matter: sentences on the metrics that change how the model runs.

Of a valley there are four answers: no token is massive; one is, and there is no valley; the valley
goes with it; or it does not. "It goes" means that without the token the entropy falls by less than
half as much at the same layer:

    layer            0     1     2     3     final
    all tokens       0.80  0.79  0.05  0.06  0.75     falls by 0.70 at layer 2
    without sinks    0.80  0.79  0.78  0.77  0.75     by 0.00 there: it goes
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from layerscope.core import capital, spans
from layerscope.metrics.factors import SINK
from layerscope.runs.curves import Curve
from layerscope.runs.probed import Finding, Numbers
from layerscope.runs.run import Run
from layerscope.show.numbers import error, number, percent

Curves = dict[tuple[str, str | None], Curve]
"""By metric and variant."""
LEAST_FALL = 0.05
"""A smaller fall of the token entropy, of its largest possible value, is no valley."""
IDLE = 0.01
"""A block is idle where the prediction changes by less than this share of what the most important one changes."""
LATE = 0.1
"""A block writes late where future tokens change by less than this share of what its own does."""


def why(run: Run, measured: list[Curve]) -> Iterator[Finding]:
    """Yield what the valley is made of, and how many blocks share the prediction."""
    by_name = {(curve.metric, curve.variant): curve for curve in measured}
    every = by_name.get(("valley", "all tokens"))
    if every is not None and np.isfinite(every.values).any():
        yield _valley(by_name)
    if ("skip_prediction", "same token") in by_name:
        yield _depth(run, by_name)


def repeats(curve: Curve, measured: list[Curve]) -> bool:
    """Return whether a curve without sinks is that of all tokens, as no token is a sink."""
    if curve.variant != "without sinks":
        return False
    every = curve.metric, "all tokens"
    alike = [other for other in measured if (other.metric, other.variant) == every]
    return np.array_equal(alike[0].values, curve.values)


class Fall(NamedTuple):
    """A valley of a curve: its lowest layer, its first and last, and how far it is below its lower shoulder."""

    layer: int
    first: int
    last: int
    depth: float

    @property
    def layers(self) -> str:
        """The layers in words."""
        if self.first == self.last:
            return f"layer {self.first}"
        return f"layers {self.first} to {self.last}"


def fall_of(curve: Curve, layer: int | None = None) -> Fall:
    """Return the valley of a curve: the layer that lies deepest below what comes before and after it, or that layer.

    The shoulders are the highest values on either side, the one after the final norm included; the
    valley holds the layers that are more than halfway down from the lower one.
    """
    values = curve.values
    if curve.final is not None:
        values = np.append(values, curve.final)
    ahead = np.maximum.accumulate(values)
    behind = np.maximum.accumulate(values[::-1])[::-1]
    depths = np.minimum(ahead, behind) - values
    if layer is None:
        layer = curve.layers[int(depths[: len(curve.layers)].argmax())]
    at = curve.layers.index(layer)
    halfway = values[at] + depths[at] / 2
    first = last = at
    while first > 0 and values[first - 1] <= halfway:
        first -= 1
    while last + 1 < len(curve.layers) and values[last + 1] <= halfway:
        last += 1
    return Fall(layer, curve.layers[first], curve.layers[last], float(depths[at]))


def _valley(curves: Curves) -> Finding:
    """Return whether the valley of the token entropy goes with the massive token, or that there is none of the two."""
    fall = fall_of(curves["valley", "all tokens"])
    numbers: Numbers = {"layer": fall.layer, "fall": fall.depth}
    about_sink = _sink(curves, numbers)
    if numbers["massive_from"] is None:
        answer = "no first-token sink"
        text = f"no first-token sink: {about_sink}"
        if fall.depth >= LEAST_FALL:
            at = f"at {fall.layers} without one"
            text += f"; the token entropy falls by {number(fall.depth)} {at}"
    elif fall.depth < LEAST_FALL:
        answer = "no valley of the token entropy"
        text = f"{answer}, though {about_sink}"
    else:
        without = fall_of(curves["valley", "without sinks"], fall.layer).depth
        numbers["without"] = without
        goes = "goes" if without < fall.depth / 2 else "does not go"
        answer = f"the valley of {fall.layers} {goes} with {numbers['token']}"
        text = f"{answer}: without it the entropy falls by {number(without)} instead of {number(fall.depth)}"
        ablated = curves.get(("valley", "sinks ablated"))
        if ablated is not None:
            left = fall_of(ablated, fall.layer).depth
            numbers["ablated"] = left
            text += f", without the MLP writes that make it by {number(left)}"
        text += f" ({about_sink})"
    return Finding("valley", capital(f"{text}."), numbers, answer)


def _sink(curves: Curves, numbers: Numbers) -> str:
    """Return how long the first and the longest token get, and the attention to the first; put it into the numbers."""
    first = curves["first_norm", None]
    longest = curves["largest_norm", None]
    numbers["token"] = "token 1"
    if first.values.max() <= SINK < longest.values.max():
        numbers["token"] = "a massive token that is not the first"
        first = longest
    peak = float(first.values.max())
    massive = np.flatnonzero(first.values > SINK)
    numbers["massive_from"] = None
    words = f"{numbers['token']} has up to {number(peak)} times the median norm"
    if len(massive):
        numbers["massive_from"] = start = first.layers[massive[0]]
        words += f", from layer {start} on"
    numbers["norm"] = peak
    heads = curves.get(("first_attention", "mean head"))
    if heads is None:
        return words
    share = float(np.nanmax(heads.values))
    numbers["attention"] = share
    return f"{words}; token 1 gets up to {percent(share, 0)} of a block's attention"


def _depth(run: Run, curves: Curves) -> Finding:
    """Return how many blocks share the prediction, which are idle, and which write for their own token alone."""
    same = curves["skip_prediction", "same token"]
    changes = dict(zip(same.layers, same.values.tolist(), strict=True))
    most = max(changes.values())
    idle = [block for block, change in changes.items() if change <= IDLE * most]
    rows = run.at()
    value, stderr = rows.loc[
        rows["metric"] == "causal_depth", ["value", "stderr"]
    ].iloc[0]
    counted = " ".join(filter(None, (number(value), error(stderr))))
    answer = f"causal depth {counted} of {run.depth} blocks"
    numbers: Numbers = {"value": value, "stderr": stderr}
    top = max(changes, key=lambda block: changes[block])
    text = f"{answer}; without block {top} the prediction changes most"
    if idle:
        numbers["idle"] = spans(idle)
        text += f"; without {spans(idle, 'block')} the prediction stays the same: idle"
    late = _late(changes, curves.get(("skip_prediction", "future tokens")))
    if late is not None:
        numbers["late_from"] = late
        text += f"; blocks {late} to {run.depth} write late: they change their own token's prediction, not later ones"
    return Finding("causal_depth", capital(f"{text}."), numbers, answer)


def _late(changes: dict[int, float], future: Curve | None) -> int | None:
    """Return from which block on skipping hardly changes future tokens; the last alone, which cannot, is no answer."""
    if future is None:
        return None
    start = None
    for block in sorted(changes, reverse=True):
        if future.at(block)[0] > LATE * changes[block]:
            break
        start = block
    if start == max(changes):
        return None
    return start
