"""From the curves of a run to sentences about what stands out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from layerscope.reports.curves import SIMILAR, Curve, curves, error, number, told
from layerscope.runs.run import Run

INTERVAL = 1.96
"""Standard errors to each side of a 95 % interval."""


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
    several = len({c.pooling for c in known if c.metric in ("linear_probe", "knn_probe")}) > 1
    probes = [c for c in known if c.metric == "linear_probe"] or [c for c in known if c.metric == "knn_probe"]
    found = [_best(c, f", {c.pooling} pooling" if several else "") for c in probes if c.stands_out]
    for name, tell in (("prompt_entropy", _valley), ("cosine_similarity", _similar)):
        first = next((c for c in known if c.metric == name), None)
        if first is not None and np.isfinite(first.values).any():
            found += tell(first)
    return [*found, *_decisions(run, {c.metric: c for c in known if c.group == "decisions"})]


def _best(curve: Curve, where: str) -> Finding:
    best, end = curve.stands_out or 0, curve.layers[-1]
    (value, stderr), (last, last_stderr) = curve.at(best), curve.last()
    rivals = {layer: curve.at(layer)[0] for layer in curve.layers if 1 <= layer < end}
    rivals = {layer: v for layer, v in rivals.items() if math.isfinite(v)}
    title = (
        f"{curve.title[0].upper()}{curve.title[1:]}{where}"
        if curve.metric == "linear_probe"
        else f"{curve.title}{where}"
    )
    numbers: dict[str, float | int | str | bool | None] = {
        "metric": curve.metric, "pooling": curve.pooling, "layer": best, "value": value, "stderr": stderr,
        "last": last, "last_stderr": last_stderr,
    }  # fmt: skip
    if not math.isfinite(last):
        text = (
            f"{title}: layer {best} reads the labels best, {told(curve, value, stderr)}; the last layer has no value."
        )
        return Finding("best_layer", text, numbers | {"within_error": None})
    if value > last:
        within = _overlap(value, stderr, last, last_stderr)
        verdict = {
            None: "how sure that is, is not known",
            True: "that is within the error (the 95 % intervals overlap)",
            False: "that is more than the error (the 95 % intervals do not overlap)",
        }[within]
        text = (
            f"{title}: layer {best} reads the labels best, {told(curve, value, stderr)} against "
            f"{told(curve, last, last_stderr)} at the last layer; {verdict}."
        )
    else:
        numbers |= {"layer": end, "value": last, "stderr": last_stderr}
        text, within = (
            f"{title}: the last layer reads the labels best, {told(curve, last, last_stderr)}",
            None,
        )
        if rivals:
            next_best = max(rivals, key=rivals.__getitem__)
            within = _overlap(last, last_stderr, *curve.at(next_best))
            close = " and within the error of it" if within else ""
            text += f"; the best before it is layer {next_best} with {told(curve, *curve.at(next_best))}{close}"
        text += "."
    if curve.at(0)[0] > max(value, last):
        text += f" Layer 0, the embeddings, has {told(curve, *curve.at(0))} and is no candidate."
    return Finding("best_layer", text, numbers | {"within_error": within})


def _overlap(a: float, a_stderr: float, b: float, b_stderr: float) -> bool | None:
    reach = INTERVAL * (a_stderr + b_stderr)
    return bool(abs(a - b) <= reach) if math.isfinite(reach) else None


def _valley(curve: Curve) -> list[Finding]:
    lowest, end = curve.stands_out, curve.layers[-1]
    if lowest is None:
        return []
    value = curve.at(lowest)[0]
    first, last = curve.at(0)[0], curve.last()[0]
    interior = lowest < end and not first <= value and not last <= value
    text = f"Prompt entropy is lowest at layer {lowest} of {end} ({told(curve, value)})"
    if interior:
        text += f": a valley inside the stack, between {number(first)} at layer 0 and {number(last)} at the last layer."
    elif first <= value:
        text += f", and lower still at layer 0 ({number(first)}): no valley inside the stack."
    elif last < value:
        text += f", and lower still after the final norm ({number(last)}): no valley inside the stack."
    else:
        text += ", the end of the stack: no valley inside it."
    return [Finding("prompt_entropy_valley", text, {"layer": lowest, "value": value, "interior": interior})]


def _similar(curve: Curve) -> list[Finding]:
    start, end = curve.stands_out, curve.layers[-1]
    normed = curve.final is not None
    before = [layer for layer in curve.layers if 1 <= layer < end + normed and math.isfinite(curve.at(layer)[0])]
    if not before:
        return []
    level = f"a cosine above {SIMILAR} to the last layer"
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
    rows = run.table()
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
