"""Which layer of a run reads the labels best, in sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from layerscope.core.words import count
from layerscope.inputs.corpus import WHOLE
from layerscope.inputs.enough import Judged
from layerscope.runs.curves import Curve, value_text
from layerscope.runs.finding import VERDICTS, Finding, Numbers, Point, is_within
from layerscope.runs.titles import capital
from layerscope.show.numbers import INTERVAL
from layerscope.show.plain import pooling_name

if TYPE_CHECKING:
    from layerscope.runs.run import Run

Points = dict[int, Point]
"""Value and standard error by layer."""


@dataclass(frozen=True)
class Labels:
    """What is known of a run's labels.

    `chance` is the share of the most frequent one, NaN where unknown, and `judged` how many samples probes judged;
    `last` is what the last layer is called beside a better one.
    """

    chance: float
    judged: Judged | None
    last: str

    def is_above(self, point: Point) -> bool | None:
        """Return whether an accuracy is above that of the most frequent label; None where that is not known."""
        value, stderr = point
        if not math.isfinite(self.chance) or not math.isfinite(value):
            return None
        return value > self.chance + (INTERVAL * stderr if math.isfinite(stderr) else 0.0)


def probed(run: Run, known: list[Curve]) -> list[Finding]:
    """Return for each pooling which layer reads the labels best, by the linear probe where there is one, else kNN."""
    linear = [c for c in known if c.metric == "linear_probe"]
    nearest = [c for c in known if c.metric == "knn_probe"]
    if not linear and not nearest:
        return []
    several = len({c.pooling for c in linear + nearest}) > 1
    last = "the model as shipped" if run.info["options"].get("pooling") == "auto" else "the last layer"
    given = run.folder.labels()
    counts = [] if given is None else [size for size in given.value_counts() if size >= WHOLE]
    chance = max(counts) / sum(counts) if counts else math.nan
    labels = Labels(chance, None if given is None else Judged.of(given), last)
    beside = {c.pooling: c for c in nearest} if linear else {}
    return [
        _best(c, f", {pooling_name(c.pooling)}" if several else "", labels, beside.get(c.pooling))
        for c in linear or nearest
        if _points(c)
    ]


def _points(curve: Curve) -> Points:
    """Return the layers that can be best, the last one after its norm."""
    points = {layer: curve.at(layer) for layer in curve.layers if layer >= 1}
    if curve.layers[-1] in points:
        points[curve.layers[-1]] = curve.last()
    return {layer: point for layer, point in points.items() if math.isfinite(point[0])}


def _tops(points: Points) -> list[int]:
    highest = max(value for value, _ in points.values())
    return [layer for layer, (value, _) in points.items() if value == highest]


def _best(curve: Curve, where: str, labels: Labels, nearest: Curve | None) -> Finding:
    points, end = _points(curve), curve.layers[-1]
    tops, judged, at_start = _tops(points), labels.judged, curve.at(0)
    layer = end if end in tops else tops[0]
    above, start_above = labels.is_above(points[layer]), labels.is_above(at_start)
    share = f"the most frequent label alone gives {100 * labels.chance:.1f} %"
    within = None
    if above is False:
        text = f"no layer{' from 1 on' if start_above else ''} reads the labels above chance: the highest has "
        text += f"{value_text(curve, *points[layer])}, and {share}."
        answer = capital(text[:-1])
    else:
        text, within = _ranked(curve, points, tops)
        answer = _answer(curve, points, tops, within, labels.last)
        text += "." if above is None else f"; {share}."
    if at_start[0] > points[layer][0] and (start_above or above is not False):
        text += f" Layer 0, what the first block reads, has {value_text(curve, *at_start)} and is no candidate."
    if nearest is not None:
        text += _by_neighbours(nearest, tops if above is not False else [], labels)
    lacking = ""
    if judged is not None:
        judged = replace(judged, n=curve.n)
        lacking = judged.lacking
        text = f"no layer is named: {lacking}." if lacking else f"{text} Judged: {judged.text}."
        answer = capital(text[:-1]) if lacking else answer
    chosen = not lacking and above is not False and not 1 < len(tops) == len(points)
    last, last_stderr = curve.last()
    numbers: Numbers = {
        "metric": curve.metric, "pooling": curve.pooling, "layer": layer if chosen else None,
        "value": points[layer][0], "stderr": points[layer][1], "last": last, "last_stderr": last_stderr,
        "within_error": within, "ties": len(tops), "chance": labels.chance, "above_chance": above,
    }  # fmt: skip
    return Finding("best_layer", f"{capital(curve.title)}{where}: {text}", numbers, answer)


def _answer(curve: Curve, points: Points, tops: list[int], within: bool | None, name: str) -> str:
    """Return in one line which layer to take, where one reads the labels above chance."""
    end, labels, best = curve.layers[-1], f"your {count(curve.n, 'label')}", value_text(curve, *points[tops[0]])
    if 1 < len(tops) == len(points):
        return f"Every layer from 1 on reads {labels} alike, at {best}"
    if end in tops:
        return f"Keep the whole model: its last layer reads {labels} best, at {best}"
    lead = f"Layer {tops[0]} of {end} reads {labels} best, at {best}"
    if end not in points:
        return f"{lead}; the last layer has no value"
    last = f"{name} at {value_text(curve, *points[end])}"
    if within is False:
        return f"Use layer {tops[0]} of {end}: it reads {labels} at {best}, {last}"
    return f"{lead}, but {last}: {'within the error of the difference' if within else VERDICTS[None]}"


def _ranked(curve: Curve, points: Points, tops: list[int]) -> tuple[str, bool | None]:
    """Return which layers read the labels best and against which, and whether that is within the error."""
    end, best = curve.layers[-1], value_text(curve, *points[tops[0]])
    if 1 < len(tops) == len(points):
        all_of_them = "every layer" if curve.at(0)[0] == points[tops[0]][0] else "every layer from 1 on"
        return f"{all_of_them} reads the labels alike, {best}", True
    text = f"{'the last layer' if tops == [end] else _named(tops)} reads the labels best, {best}"
    if len(tops) > 1:
        text = f"{_named(tops)} tie for the best at {best}"
        if end in tops:
            return text, True
    if end not in points:
        return f"{text}; the last layer has no value", None
    rivals = [layer for layer in points if layer != end] if tops == [end] else [end]
    if not rivals:
        return text, None
    rival = max(rivals, key=lambda layer: points[layer][0])
    within, against = is_within(points[tops[0]], points[rival]), value_text(curve, *points[rival])
    other = (
        f"; the best before it is layer {rival} with {against}"
        if tops == [end]
        else f" against {against} at the last layer"
    )
    return f"{text}{other}; {VERDICTS[within]}", within


def _by_neighbours(curve: Curve, tops: list[int], labels: Labels) -> str:
    """Return where kNN is best, where that is another layer than by the linear probe."""
    points = _points(curve)
    best = _tops(points) if points else []
    if not best or set(best) & set(tops) or labels.is_above(points[best[0]]) is False:
        return ""
    return f" The kNN probe is best at {_named(best)}, {value_text(curve, *points[best[0]])}."


def _named(layers: list[int]) -> str:
    """Return `layer 3`, `layers 3 and 4`, `layers 3 to 5`, `layers 1, 3 and 4`."""
    if len(layers) == 1:
        return f"layer {layers[0]}"
    if len(layers) > 2 and layers[-1] - layers[0] == len(layers) - 1:
        return f"layers {layers[0]} to {layers[-1]}"
    return f"layers {', '.join(map(str, layers[:-1]))} and {layers[-1]}"
