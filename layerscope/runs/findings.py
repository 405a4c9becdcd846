"""From the curves of a run to sentences about what stands out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from layerscope.inputs.corpus import WHOLE
from layerscope.inputs.enough import Judged
from layerscope.runs.curves import SIMILAR, Curve, curves, told
from layerscope.runs.run import Run
from layerscope.runs.sinks import sink_tokens
from layerscope.runs.titles import capital
from layerscope.show.numbers import INTERVAL, apart, error, number
from layerscope.show.plain import pooling_name

VERDICTS = {
    None: "how sure that is, is not known",
    True: "that is within the error of the difference",
    False: "that is more than the error of the difference",
}
Points = dict[int, tuple[float, float]]
"""Value and standard error by layer."""


@dataclass(frozen=True)
class Finding:
    """One sentence about a run, and the numbers it was made of."""

    name: str
    text: str
    numbers: dict[str, float | int | str | bool | None]


def findings(run: Run, known: list[Curve] | None = None) -> list[Finding]:
    """Return what stands out in a run, in sentences computed from its numbers.

    Only labels make a layer "best"; everything else is told as an observation, and layer 0 is never chosen.
    """
    known = curves(run) if known is None else known
    found = _probed(run, known)
    for name, tell in (("prompt_entropy", _valley), ("cosine_similarity", _similar)):
        family = [c for c in known if c.metric == name]
        if family and np.isfinite(family[0].values).any():
            found += tell(family[0], _which(family))
    sinks = sink_tokens(run, known)
    found += [Finding("sinks", *sinks)] if sinks else []
    return [*found, *_decisions(run, {c.metric: c for c in known if c.group == "decisions"})]


def _which(family: list[Curve]) -> str:
    """Return which of several variants and poolings the first curve is, in brackets; empty where there is one."""
    first, names = family[0], []
    if len({c.variant for c in family}) > 1:
        names.append((first.variant or "").replace(",", ", "))
    if len({c.pooling for c in family}) > 1:
        names.append(pooling_name(first.pooling))
    return f" ({', '.join(names)})" if names else ""


def _probed(run: Run, known: list[Curve]) -> list[Finding]:
    """Tell for each pooling which layer reads the labels best: by the linear probe where there is one, else by kNN."""
    linear = [c for c in known if c.metric == "linear_probe"]
    nearest = [c for c in known if c.metric == "knn_probe"]
    several = len({c.pooling for c in linear + nearest}) > 1
    chance, judged = (_most_frequent(run), _judged(run)) if linear or nearest else (math.nan, None)
    beside = {c.pooling: c for c in nearest} if linear else {}
    return [
        _best(c, f", {pooling_name(c.pooling)}" if several else "", chance, beside.get(c.pooling), judged)
        for c in linear or nearest
        if _points(c)
    ]


def _most_frequent(run: Run) -> float:
    """Return the share of the most frequent label among those that were probed, NaN where there is none."""
    plan = run.folder.plan
    if "label" not in plan:
        return math.nan
    counts = plan.loc[plan["view"] == 0, "label"].value_counts()
    counts = counts[counts >= WHOLE]
    return float(counts.max() / counts.sum()) if len(counts) else math.nan


def _judged(run: Run) -> Judged | None:
    """Return how many samples and classes the probes judged, None where the run does not tell."""
    plan = run.folder.plan
    return Judged.of(plan.loc[plan["view"] == 0, "label"]) if "label" in plan else None


def _points(curve: Curve) -> Points:
    """Return the layers that can be best, the last one after its norm."""
    points = {layer: curve.at(layer) for layer in curve.layers if layer >= 1}
    if curve.layers[-1] in points:
        points[curve.layers[-1]] = curve.last()
    return {layer: point for layer, point in points.items() if math.isfinite(point[0])}


def _tops(points: Points) -> list[int]:
    highest = max(value for value, _ in points.values())
    return [layer for layer, (value, _) in points.items() if value == highest]


def _best(curve: Curve, where: str, chance: float, nearest: Curve | None, judged: Judged | None) -> Finding:
    points, end = _points(curve), curve.layers[-1]
    tops = _tops(points)
    layer = end if end in tops else tops[0]
    value, stderr = points[layer]
    above, at_start = _is_above(value, stderr, chance), curve.at(0)
    share = f"the most frequent label alone gives {100 * chance:.1f} %"
    within = None
    if above is False:
        start_above = _is_above(*at_start, chance)
        text = f"no layer{' from 1 on' if start_above else ''} reads the labels above chance: the highest has "
        text += f"{told(curve, value, stderr)}, and {share}."
    else:
        start_above = True
        text, within = _ranked(curve, points, tops)
        text += "." if above is None else f"; {share}."
    if at_start[0] > value and start_above:
        text += f" Layer 0, what the first block reads, has {told(curve, *at_start)} and is no candidate."
    if nearest is not None:
        text += _by_neighbours(nearest, tops if above is not False else [], chance)
    if judged is not None:
        judged = replace(judged, n=curve.n)
        text = f"no layer is named: {judged.lacking}." if judged.lacking else f"{text} Judged: {judged.told}."
    enough = judged is None or not judged.lacking
    chosen = enough and above is not False and not 1 < len(tops) == len(points)
    last, last_stderr = curve.last()
    numbers: dict[str, float | int | str | bool | None] = {
        "metric": curve.metric, "pooling": curve.pooling, "layer": layer if chosen else None, "value": value,
        "stderr": stderr, "last": last, "last_stderr": last_stderr, "within_error": within, "ties": len(tops),
        "chance": chance, "above_chance": above,
    }  # fmt: skip
    return Finding("best_layer", f"{capital(curve.title)}{where}: {text}", numbers)


def _ranked(curve: Curve, points: Points, tops: list[int]) -> tuple[str, bool | None]:
    """Return which layers read the labels best and against which, and whether that is within the error."""
    end, best = curve.layers[-1], told(curve, *points[tops[0]])
    if 1 < len(tops) == len(points):
        all_of_them = "every layer" if curve.at(0)[0] == points[tops[0]][0] else "every layer from 1 on"
        return f"{all_of_them} reads the labels alike, {best}", True
    if len(tops) > 1:
        text = f"{_named(tops)} tie for the best at {best}"
        if end in tops:
            return text, True
    else:
        text = f"{'the last layer' if tops == [end] else f'layer {tops[0]}'} reads the labels best, {best}"
    if end not in points:
        return f"{text}; the last layer has no value", None
    rivals = [layer for layer in points if layer != end] if tops == [end] else [end]
    if not rivals:
        return text, None
    rival = max(rivals, key=lambda layer: points[layer][0])
    within = _is_within(points[tops[0]], points[rival])
    against = told(curve, *points[rival])
    if tops == [end]:
        return f"{text}; the best before it is layer {rival} with {against}; {VERDICTS[within]}", within
    return f"{text} against {against} at the last layer; {VERDICTS[within]}", within


def _by_neighbours(curve: Curve, tops: list[int], chance: float) -> str:
    """Return where kNN is best, where that is another layer than by the linear probe."""
    points = _points(curve)
    best = _tops(points) if points else []
    if not best or set(best) & set(tops) or _is_above(*points[best[0]], chance) is False:
        return ""
    return f" The kNN probe is best at {_named(best)}, {told(curve, *points[best[0]])}."


def _named(layers: list[int]) -> str:
    """Return `layer 3`, `layers 3 and 4`, `layers 3 to 5`, `layers 1, 3 and 4`."""
    if len(layers) == 1:
        return f"layer {layers[0]}"
    if len(layers) > 2 and layers[-1] - layers[0] == len(layers) - 1:
        return f"layers {layers[0]} to {layers[-1]}"
    return f"layers {', '.join(map(str, layers[:-1]))} and {layers[-1]}"


def _is_above(value: float, stderr: float, chance: float) -> bool | None:
    """Return whether an accuracy is above that of the most frequent label; None where that is not known."""
    if not math.isfinite(chance) or not math.isfinite(value):
        return None
    return value > chance + (INTERVAL * stderr if math.isfinite(stderr) else 0.0)


def _is_within(a: tuple[float, float], b: tuple[float, float]) -> bool | None:
    """Return whether two values differ by no more than the error of their difference; None where it is unknown."""
    # The error of unrelated samples. Layers are measured on the same samples, whose errors mostly cancel in the
    # difference: this rather says "within" where it is not.
    reach = INTERVAL * math.hypot(a[1], b[1])
    return bool(abs(a[0] - b[0]) <= reach) if math.isfinite(reach) else None


def _valley(curve: Curve, which: str) -> list[Finding]:
    lowest = curve.stands_out
    if lowest is None:
        return []
    value = curve.at(lowest)[0]
    interior, told_so = _inside(curve, lowest)
    text = f"Prompt entropy{which} {told_so}."
    return [Finding("prompt_entropy_valley", text, {"layer": lowest, "value": value, "interior": interior})]


def _inside(curve: Curve, lowest: int) -> tuple[bool, str]:
    """Return whether the lowest layer is a valley inside the stack beyond the error, and the words for it."""
    end, point, start, final = curve.layers[-1], curve.at(lowest), curve.at(0), curve.last()
    value, first, last = point[0], start[0], final[0]
    known = [layer for layer in curve.layers if math.isfinite(curve.at(layer)[0])]
    top = max(known, key=lambda layer: curve.at(layer)[0])
    digits = apart(value, first, last, curve.at(top)[0])
    low = f"layer {lowest} of {end} ({told(curve, *point, digits=digits)})"
    if top != lowest and all(_is_within(point, other) for other in (start, curve.at(top), final)):
        return (
            False,
            f"is flat within the error: highest at layer {top} ({number(curve.at(top)[0], digits)}), lowest at {low}",
        )
    text = f"is lowest at {low}"
    if first <= value:
        return (
            False,
            f"{text}, and {_lower(first, value)} at layer 0 ({number(first, digits)}): no valley inside the stack",
        )
    if last <= value and (lowest < end or last < value):
        place = "at the last layer" if curve.final is None else "after the final norm"
        return False, f"{text}, and {_lower(last, value)} {place} ({number(last, digits)}): no valley inside the stack"
    if lowest == end:
        return False, f"{text}, the end of the stack: no valley inside it"
    ends = f"between {number(first, digits)} at layer 0 and {number(last, digits)} at the last layer"
    within = {"layer 0": _is_within(point, start), "the last layer": _is_within(point, final)}
    near = [name for name, close in within.items() if close]
    if near:
        return False, f"{text}, {ends}, but within the error of {' and '.join(near)}: no valley inside the stack"
    return True, f"{text}: a valley inside the stack, {ends}" + (
        f"; {VERDICTS[None]}" if None in within.values() else ""
    )


def _lower(other: float, value: float) -> str:
    return "lower still" if other < value else "as low"


def _similar(curve: Curve, which: str) -> list[Finding]:
    start, end = curve.stands_out, curve.layers[-1]
    normed = curve.final is not None
    before = [layer for layer in curve.layers if 1 <= layer < end + normed and math.isfinite(curve.at(layer)[0])]
    if not before:
        return []
    level = f"a cosine{which} above {SIMILAR} to the last layer"
    closest = ", ".join(
        f"layer {layer}{' before the final norm' if layer == end else ''}: {number(curve.at(layer)[0])}"
        for layer in before[-2:]
    )
    if start is None:
        text = f"No layer has {level} but the last itself ({closest})."
    elif start == end:
        text = f"Only layer {end} itself has {level}, which is its own output after the norm ({closest})."
    else:
        text = f"From layer {start} of {end} on all have {level} ({number(curve.at(start)[0])} there)."
    return [Finding("similar_to_last", text, {"layer": start, "value": curve.at(start)[0] if start else None})]


def _decisions(run: Run, known: dict[str, Curve]) -> list[Finding]:
    """Tell what the model's own head says at each layer, where it has one."""
    found = []
    rows = run.at()
    mean = rows[rows["metric"] == "saturation_layer"]
    if len(mean) and math.isfinite(float(mean["value"].iloc[0])):
        value, stderr = float(mean["value"].iloc[0]), float(mean["stderr"].iloc[0])
        numbers: dict[str, float | int | str | bool | None] = {"mean_layer": value, "stderr": stderr}
        text = f"Predictions stop changing at layer {number(value)} of {run.depth} on average"
        text += f" ({error(stderr)})" if error(stderr) else ""
        half = run.depth // 2
        share = known["saturated"].at(half)[0] if "saturated" in known else math.nan
        if math.isfinite(share):
            text += f"; {100 * share:.1f} % have by half depth (layer {half})"
            numbers |= {"half_depth": half, "saturated_by_half": share}
        found.append(Finding("saturation", f"{text}.", numbers))
    deep = rows[(rows["metric"] == "effective_depth") & rows["variant"].str.startswith("relative_to=last").astype(bool)]
    if len(deep):
        layer = int(deep["value"].iloc[0])
        text = (
            f"Effective depth: layer {layer} of {run.depth} is the first within a point of the last layer's accuracy."
        )
        found.append(Finding("effective_depth", text, {"layer": layer}))
    for name, word in (("perplexity", "Perplexity"), ("layer_accuracy", "Accuracy through the model's head")):
        curve = known.get(name)
        if curve is None or not math.isfinite(curve.last()[0]):
            continue
        value, stderr = curve.last()
        text = f"{word} at the last layer: {told(curve, value, stderr)}"
        other = curve.stands_out
        if other is not None and other < curve.layers[-1] and curve.at(other)[0] != value:
            text += f"; at layer {other}: {told(curve, *curve.at(other))}"
        found.append(Finding(name, f"{text}.", {"last": value, "last_stderr": stderr, "extreme_layer": other}))
    return found
