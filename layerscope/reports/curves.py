"""From the long frame of a run to named curves, and from the curves to sentences about what stands out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.metrics.registry import METRICS
from layerscope.runs.run import Run

Group = Literal["quality", "similarity", "decisions"]
Values = npt.NDArray[np.float64]

GROUPS: dict[str, Group] = {"pairs": "similarity", "lens": "decisions", "labels": "decisions"}
UNITS = {
    "prompt_entropy": "nats", "dataset_entropy": "nats", "curvature": "radians", "effective_rank": "dimensions",
    "infonce": "nats", "infonce_bound": "nats", "lidar": "directions", "dime": "nats", "layer_accuracy": "%",
    "saturated": "%", "linear_probe": "%", "knn_probe": "%", "sinks": "tokens",
}  # fmt: skip
LOWEST = ("prompt_entropy", "curvature", "infonce", "perplexity")
"""What stands out in these is their minimum, in the others their maximum: a convention, not a verdict."""
SIMILAR = 0.9
HALF = 0.5
NIL = 1e-9
"""A standard error below this is rounding, as of a layer's cosine to itself."""
INTERVAL = 1.96
"""Standard errors to each side of a 95 % interval."""


@dataclass(frozen=True)
class Curve:
    """One metric by layer: arrays of one length, accuracies and shares in 0 … 1.

    `final` is the value after the final norm where `values` are taken before it, else None; a curve at the site
    `normed` has it as its last value. `stands_out` is a layer ≥ 1, or None where none does.
    """

    metric: str
    title: str
    variant: str | None
    pooling: str | None
    site: str
    group: Group
    layers: tuple[int, ...]
    values: Values
    stderr: Values
    final: float | None
    final_stderr: float | None
    n: int
    n_skipped: int
    stands_out: int | None

    @property
    def unit(self) -> str:
        """Name the unit, an empty string where there is none."""
        return UNITS.get(self.metric, "")

    @property
    def scale(self) -> float:
        """Factor from the values to the unit they are shown in."""
        return 100.0 if self.unit == "%" else 1.0

    @property
    def log(self) -> bool:
        """Whether only a logarithmic axis shows its shape."""
        return self.metric == "perplexity"

    def at(self, layer: int) -> tuple[float, float]:
        """Return value and standard error at a layer, NaN where there is none."""
        if layer not in self.layers:
            return math.nan, math.nan
        i = self.layers.index(layer)
        return float(self.values[i]), float(self.stderr[i])

    def last(self) -> tuple[float, float]:
        """Return value and standard error at the model's last layer, after its norm where it has one."""
        if self.final is not None:
            return self.final, math.nan if self.final_stderr is None else self.final_stderr
        return self.at(self.layers[-1])


@dataclass(frozen=True)
class Finding:
    """One sentence about a run, and the numbers it was made of."""

    name: str
    text: str
    numbers: dict[str, float | int | str | bool | None]


def curves(run: Run) -> list[Curve]:
    """Return every metric of a run that has a value at each layer; of pairs, the similarity to the last layer.

    One curve for each metric, variant and pooling, in the order of the registry; what was never measured is absent.
    """
    table = run.table()
    pairs = table["layer_b"].notna()
    to_last = (table["layer_b"] == run.depth) & (table["site_b"] == run.final)
    by_layer = table[(~pairs | to_last.fillna(False).astype(bool)) & (table["metric"] != "saturation_layer")]
    found = [
        _curve(rows.sort_values("layer"), run)
        for _, rows in by_layer.groupby(["metric", "variant", "pooling"], sort=False, dropna=False)
    ]
    order = {name: i for i, name in enumerate(METRICS)}
    return sorted(found, key=lambda c: order.get(c.metric, len(order)))


def _curve(rows: pd.DataFrame, run: Run) -> Curve:
    first = rows.iloc[0]
    metric = str(first["metric"])
    raw, after = rows[rows["site"] == "raw"], rows[rows["site"] == run.final]
    body = next(part for part in (raw, after, rows[rows["site"] == first["site"]]) if len(part))
    end = after.iloc[-1] if len(raw) and len(after) and run.final != "raw" else None
    known = METRICS.get(metric)
    layers = tuple(int(layer) for layer in body["layer"])
    values = body["value"].to_numpy(dtype=np.float64)
    return Curve(
        metric=metric,
        title=known.title if known else metric,
        variant=_text(first["variant"]),
        pooling=_text(first["pooling"]),
        site=str(body["site"].iloc[0]),
        group=GROUPS.get(known.needs, "quality") if known else "quality",
        layers=layers,
        values=values,
        stderr=body["stderr"].to_numpy(dtype=np.float64),
        final=None if end is None else float(end["value"]),
        final_stderr=None if end is None else float(end["stderr"]),
        n=int(body["n"].max()),
        n_skipped=int(body["n_skipped"].max()),
        stands_out=_stands_out(metric, layers, values, reference=run.depth if run.final == "raw" else None),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _stands_out(metric: str, layers: tuple[int, ...], values: Values, reference: int | None) -> int | None:
    known = {layer: float(v) for layer, v in zip(layers, values, strict=True) if layer >= 1 and math.isfinite(v)}
    needs = METRICS[metric].needs if metric in METRICS else None
    if needs == "pairs":
        start = _holds_from(known, SIMILAR)
        return None if start == reference else start
    if metric == "saturated":
        return _holds_from(known, HALF)
    if not known or (len(known) > 1 and len(set(known.values())) == 1):
        return None
    return (min if metric in LOWEST else max)(known, key=known.__getitem__)


def _holds_from(known: dict[int, float], level: float) -> int | None:
    """Return the first layer from which every value is above a level."""
    start = None
    for layer in sorted(known, reverse=True):
        if known[layer] <= level:
            break
        start = layer
    return start


def number(value: float) -> str:
    """Return a value with three significant digits, `–` where it is not finite."""
    if not math.isfinite(value):
        return "–" if math.isnan(value) else str(value)
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 99950 or size < 0.0009995:
        digits, power = f"{value:.2e}".split("e")
        return f"{digits}e{int(power)}"
    decimals = 2 - math.floor(math.log10(float(f"{size:.2e}")))
    return f"{round(value, decimals):,.{max(0, decimals)}f}"


def error(stderr: float) -> str:
    """Return `±` and a standard error with one significant digit (two after a 1); empty where it is unknown or nil."""
    if not math.isfinite(stderr) or stderr < NIL:
        return ""
    extra = 1 if f"{stderr:.1e}".startswith("1") else 0
    if stderr >= 99950 or stderr < 0.00095:
        digits, power = f"{stderr:.{extra}e}".split("e")
        return f"±{digits}e{int(power)}"
    decimals = extra - math.floor(math.log10(float(f"{stderr:.{extra}e}")))
    return f"±{round(stderr, decimals):,.{max(0, decimals)}f}"


def told(curve: Curve, value: float, stderr: float = math.nan) -> str:
    """Return value, standard error and unit of a point of a curve, as a sentence says it."""
    if curve.unit == "%" and math.isfinite(value):
        shown = f"{100 * value:.1f}" + (f" ±{100 * stderr:.1f}" if stderr >= NIL else "")
        return f"{shown} %"
    return " ".join(part for part in (number(value), error(stderr), curve.unit) if part)


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
