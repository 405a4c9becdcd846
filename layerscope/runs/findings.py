"""From the curves of a run to sentences about what stands out."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from layerscope.core.errors import count, spans
from layerscope.runs.curves import SIMILAR, Curve, curves, value_text, which
from layerscope.runs.probed import VERDICTS, Finding, Numbers, is_within, probed
from layerscope.show.numbers import apart, error, number

if TYPE_CHECKING:
    from layerscope.runs.run import Run


def findings(run: "Run", known: list[Curve] | None = None) -> list[Finding]:
    """Return what stands out in a run, in sentences computed from its numbers.

    Only labels make a layer "best"; everything else is an observation, and layer 0 is never chosen.
    """
    known = curves(run) if known is None else known
    found = probed(run, known)
    for name, describe in (("prompt_entropy", _valley), ("cosine_similarity", _similar)):
        family = [c for c in known if c.metric == name]
        if family and np.isfinite(family[0].values).any():
            names = ", ".join(name.replace(",", ", ") for name in which(family[0], family))
            found += describe(family[0], f" ({names})" if names else "")
    return [
        *found,
        *_sinks(run, known),
        *_decisions(run, {c.metric: c for c in known if c.group == "decisions"}),
    ]


def answer(run: "Run", known: list[Curve], found: list[Finding]) -> str:
    """Return in one line which layer to take, by labels; without them what was observed, and no verdict."""
    judged = [finding for finding in found if finding.name == "best_layer"]
    if judged:
        return max(judged, key=lambda finding: float(finding.numbers["value"] or 0)).answer
    if not known:
        return "None of the chosen metrics has a value here"
    observed = [finding.answer for finding in found if finding.answer]
    measured = f"{count(len(known), 'metric')} at {spans(run.layers, 'layer')}"
    return f"No labels were probed, so no layer is named: {'; '.join(observed) or measured}"


def _valley(curve: Curve, which: str) -> list[Finding]:
    lowest = curve.stands_out
    if lowest is None:
        return []
    words, interior = _inside(curve, lowest)
    numbers: Numbers = {"layer": lowest, "value": curve.at(lowest)[0], "interior": interior}
    answer = f"prompt entropy is lowest at layer {lowest}"
    return [Finding("prompt_entropy_valley", f"Prompt entropy{which} {words}.", numbers, answer)]


def _inside(curve: Curve, lowest: int) -> tuple[str, bool]:
    """Return where the lowest layer lies, and whether it is a valley inside the stack beyond the error."""
    begin, end, point, final = (
        f"layer {curve.layers[0]}",
        curve.layers[-1],
        curve.at(lowest),
        curve.last(),
    )
    start = curve.at(curve.layers[0])
    value, first, last = point[0], start[0], final[0]
    top = max(
        (layer for layer in curve.layers if math.isfinite(curve.at(layer)[0])),
        key=lambda i: curve.at(i)[0],
    )
    digits = apart(value, first, last, curve.at(top)[0])
    highest, at_start, at_end = (number(v, digits) for v in (curve.at(top)[0], first, last))
    low = f"layer {lowest} of {end} ({value_text(curve, *point, digits=digits)})"
    if top != lowest and all(is_within(point, other) for other in (start, curve.at(top), final)):
        return (
            f"is flat within the error: highest at layer {top} ({highest}), lowest at {low}",
            False,
        )
    ends = f"between {at_start} at {begin} and {at_end} at the last layer"
    within = {begin: is_within(point, start), "the last layer": is_within(point, final)}
    if first <= value:
        where = f"and {'lower still' if first < value else 'as low'} at {begin} ({at_start})"
    elif last <= value and (lowest < end or last < value):
        layer = "at the last layer" if curve.final is None else "after the final norm"
        where = f"and {'lower still' if last < value else 'as low'} {layer} ({at_end})"
    elif lowest == end:
        where = "the end of the stack"
    elif any(within.values()):
        where = f"{ends}, but within the error of {' and '.join(name for name, close in within.items() if close)}"
    else:
        doubt = f"; {VERDICTS[None]}" if None in within.values() else ""
        return f"is lowest at {low}: a valley inside the stack, {ends}{doubt}", True
    return f"is lowest at {low}, {where}: no valley inside the stack", False


def _similar(curve: Curve, which: str) -> list[Finding]:
    start, end = curve.stands_out, curve.layers[-1]
    normed = curve.final is not None
    before = [
        layer
        for layer in curve.layers
        if 1 <= layer < end + normed and math.isfinite(curve.at(layer)[0])
    ]
    if not before:
        return []
    level = f"a cosine{which} above {SIMILAR} to the last layer"
    closest = ", ".join(
        f"layer {layer}{' before the final norm' if layer == end else ''}: {number(curve.at(layer)[0])}"
        for layer in before[-2:]
    )
    if start is None:
        text = f"No other layer has {level} ({closest})."
    elif start == end:
        text = f"Only layer {end} itself has {level}, which is its own output after the norm ({closest})."
    else:
        text = f"From layer {start} of {end} on, all have {level} ({number(curve.at(start)[0])} there)."
    some = start is not None and start < end
    close = (
        f"from layer {start} of {end} on, all are close to the last"
        if some
        else "no layer is close to the last"
    )
    numbers: Numbers = {"layer": start, "value": curve.at(start)[0] if start else None}
    return [Finding("similar_to_last", text, numbers, close)]


def _decisions(run: "Run", known: dict[str, Curve]) -> Iterator[Finding]:
    """Yield what the model's own head says at each layer, where it has one."""
    rows = run.at()
    mean = rows[rows["metric"] == "saturation_layer"]
    if len(mean) and math.isfinite(value := float(mean["value"].iloc[0])):
        stderr, half = float(mean["stderr"].iloc[0]), run.depth // 2
        numbers: Numbers = {"mean_layer": value, "stderr": stderr}
        layer = f"layer {number(value)} of {run.depth} on average"
        text = f"Predictions stop changing at {layer}" + (
            f" ({error(stderr)})" if error(stderr) else ""
        )
        share = known["saturated"].at(half)[0] if "saturated" in known else math.nan
        if math.isfinite(share):
            text += f"; {100 * share:.1f} % have by half depth (layer {half})"
            numbers |= {"half_depth": half, "saturated_by_half": share}
        yield Finding("saturation", f"{text}.", numbers, f"predictions settle at {layer}")
    deep = rows[
        (rows["metric"] == "effective_depth")
        & rows["variant"].str.startswith("relative_to=last").astype(bool)
    ]
    if len(deep):
        first = int(deep["value"].iloc[0])
        where = " on training data" if deep["variant"].iloc[0].endswith("on=train") else ""
        score = "accuracy" if "layer_accuracy" in known else "score"
        text = f"layer {first} of {run.depth} is the first within a point of the last layer's {score}{where}."
        yield Finding("effective_depth", f"Effective depth: {text}", {"layer": first})
    for name, word in (
        ("perplexity", "Perplexity"),
        ("layer_accuracy", "Accuracy through the model's head"),
    ):
        curve = known.get(name)
        if curve is None or not math.isfinite(curve.last()[0]):
            continue
        value, stderr = curve.last()
        text, other = (
            f"{word} at the last layer: {value_text(curve, value, stderr)}",
            curve.stands_out,
        )
        if other is not None and other < curve.layers[-1] and curve.at(other)[0] != value:
            text += f"; at layer {other}: {value_text(curve, *curve.at(other))}"
        yield Finding(
            name, f"{text}.", {"last": value, "last_stderr": stderr, "extreme_layer": other}
        )


def _sinks(run: "Run", known: list[Curve]) -> Iterator[Finding]:
    """Yield where tokens of massive norm are, how many, and whether they are in the run's means and entropies."""
    counted = {c.metric: c for c in known if c.metric in ("sink_share", "sinks")}
    curve = counted.get("sink_share") or counted.get("sinks")
    if curve is None or not np.nanmax(curve.values, initial=0.0) > 0:
        return
    with_some = [layer for layer in curve.layers if curve.at(layer)[0] > 0]
    most = max(with_some, key=lambda layer: curve.at(layer)[0])
    value, stderr = curve.at(most)
    shares, out = curve.unit == "%", bool(run.info["options"].get("exclude_sinks"))
    much = (
        f"{value_text(curve, value, stderr)} of the tokens"
        if shares
        else f"{number(value)} tokens of a sample"
    )
    text = (
        f"Sinks: {much} have more than 10 times their sample's median norm at layer {most} of {run.depth}, the most; "
        f"{len(with_some)} of {len(curve.layers)} layers have some. They are "
    )
    text += "left out of entropies and means here." if out else "in the means over tokens; "
    text += "" if out else "`exclude_sinks=True` leaves them out."
    yield Finding(
        "sinks", text, {"layer": most, "value": value, "layers": len(with_some), "left_out": out}
    )
