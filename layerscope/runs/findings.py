"""From the curves of a run to sentences about what stands out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from layerscope.inputs.corpus import count
from layerscope.runs.curves import SIMILAR, Curve, curves, told
from layerscope.runs.finding import VERDICTS, Finding, Numbers, is_within
from layerscope.runs.probed import probed
from layerscope.runs.sinks import sink_tokens
from layerscope.show.numbers import apart, error, number
from layerscope.show.plain import pooling_name

if TYPE_CHECKING:
    from layerscope.runs.run import Run


def findings(run: Run, known: list[Curve] | None = None) -> list[Finding]:
    """Return what stands out in a run, in sentences computed from its numbers.

    Only labels make a layer "best"; everything else is told as an observation, and layer 0 is never chosen.
    """
    known = curves(run) if known is None else known
    found = probed(run, known)
    for name, tell in (("prompt_entropy", _valley), ("cosine_similarity", _similar)):
        family = [c for c in known if c.metric == name]
        if family and np.isfinite(family[0].values).any():
            found += tell(family[0], _which(family))
    sinks = sink_tokens(run, known)
    found += [sinks] if sinks else []
    return [*found, *_decisions(run, {c.metric: c for c in known if c.group == "decisions"})]


def answer(run: Run, known: list[Curve], found: list[Finding]) -> str:
    """Return in one line which layer to take where labels tell, else what was observed, without a verdict."""
    judged = [finding for finding in found if finding.name == "best_layer"]
    if judged:
        return max(judged, key=lambda finding: float(finding.numbers["value"] or 0)).answer
    if not known:
        return "No metric that was asked for has a value here"
    observed = [finding.answer for finding in found if finding.answer]
    measured = f"{count(len(known), 'curve')} by layer, {run.columns[0].layer} to {run.depth}"
    return f"No labels were probed, so no layer is named: {'; '.join(observed) or measured}"


def _which(family: list[Curve]) -> str:
    """Return which of several variants and poolings the first curve is, in brackets; empty where there is one."""
    first, names = family[0], []
    if len({c.variant for c in family}) > 1:
        names.append((first.variant or "").replace(",", ", "))
    if len({c.pooling for c in family}) > 1:
        names.append(pooling_name(first.pooling))
    return f" ({', '.join(names)})" if names else ""


def _valley(curve: Curve, which: str) -> list[Finding]:
    lowest = curve.stands_out
    if lowest is None:
        return []
    value = curve.at(lowest)[0]
    interior, told_so = _inside(curve, lowest)
    text = f"Prompt entropy{which} {told_so}."
    numbers: Numbers = {"layer": lowest, "value": value, "interior": interior}
    return [Finding("prompt_entropy_valley", text, numbers, f"prompt entropy is lowest at layer {lowest}")]


def _inside(curve: Curve, lowest: int) -> tuple[bool, str]:
    """Return whether the lowest layer is a valley inside the stack beyond the error, and the words for it."""
    end, point, start, final = curve.layers[-1], curve.at(lowest), curve.at(0), curve.last()
    value, first, last = point[0], start[0], final[0]
    known = [layer for layer in curve.layers if math.isfinite(curve.at(layer)[0])]
    top = max(known, key=lambda layer: curve.at(layer)[0])
    digits = apart(value, first, last, curve.at(top)[0])
    low = f"layer {lowest} of {end} ({told(curve, *point, digits=digits)})"
    if top != lowest and all(is_within(point, other) for other in (start, curve.at(top), final)):
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
    within = {"layer 0": is_within(point, start), "the last layer": is_within(point, final)}
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
    some = start is not None and start < end
    close = f"from layer {start} of {end} on all are close to the last" if some else "no layer is close to the last"
    numbers: Numbers = {"layer": start, "value": curve.at(start)[0] if start else None}
    return [Finding("similar_to_last", text, numbers, close)]


def _decisions(run: Run, known: dict[str, Curve]) -> list[Finding]:
    """Tell what the model's own head says at each layer, where it has one."""
    found = []
    rows = run.at()
    mean = rows[rows["metric"] == "saturation_layer"]
    if len(mean) and math.isfinite(float(mean["value"].iloc[0])):
        value, stderr = float(mean["value"].iloc[0]), float(mean["stderr"].iloc[0])
        numbers: Numbers = {"mean_layer": value, "stderr": stderr}
        text = f"Predictions stop changing at layer {number(value)} of {run.depth} on average"
        text += f" ({error(stderr)})" if error(stderr) else ""
        half = run.depth // 2
        share = known["saturated"].at(half)[0] if "saturated" in known else math.nan
        if math.isfinite(share):
            text += f"; {100 * share:.1f} % have by half depth (layer {half})"
            numbers |= {"half_depth": half, "saturated_by_half": share}
        settled = f"predictions settle at layer {number(value)} of {run.depth} on average"
        found.append(Finding("saturation", f"{text}.", numbers, settled))
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
