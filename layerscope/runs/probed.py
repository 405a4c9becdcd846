"""Which layer of a run reads the labels best, in sentences."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.core.errors import count
from layerscope.core.margin import INTERVAL, differs, error_of, named, tied
from layerscope.inputs.corpus import WHOLE, Judged
from layerscope.runs.curves import Curve, value_text
from layerscope.runs.registry import capital
from layerscope.show.plain import pooling_name

if TYPE_CHECKING:
    from layerscope.runs.run import Run

HITS = "samples.probes"
"""The table that says which samples each probe gets right at each layer."""
Floats = npt.NDArray[np.float64]
Numbers = dict[str, float | int | str | bool | None]
Point = tuple[float, float]
"""Value and standard error."""


@dataclass(frozen=True)
class Finding:
    """One sentence about a run, and the numbers it was made of; `answer` is what it has to say in the first line."""

    name: str
    text: str
    numbers: Numbers
    answer: str = ""


def is_within(a: Point, b: Point) -> bool | None:
    """Return whether two values differ by no more than the error of their difference; None where it is unknown."""
    # The error of unrelated samples. Layers are measured on the same samples, whose errors mostly
    # cancel in the difference: without the hits of each sample this rather says "within" where it
    # is not.
    apart = differs(a[0] - b[0], math.hypot(a[1], b[1]))
    return None if apart is None else not apart


def hits_of(run: "Run", curve: Curve) -> dict[int, Floats]:
    """Return by layer which samples a probe gets right, 1, or wrong, 0; nothing where a run does not know."""
    if run.is_history or not run.folder.has_table(HITS):
        return {}
    rows = run.folder.read_table(HITS)
    rows = rows[(rows["metric"] == curve.metric) & (rows["pooling"] == curve.pooling)]
    by_layer = rows.pivot(index="sample", columns="layer", values="value").dropna()
    return {int(layer): hits.to_numpy(np.float64) for layer, hits in by_layer.items()}


def drawn_from(run: "Run") -> int | None:
    """Return of how many samples those of a run were drawn; None where it has them all."""
    streamed: int | None = run.info.get("stream", {}).get("samples")
    return streamed or run.info["data"].get("drawn_from")


def probed(run: "Run", curves: list[Curve]) -> list[Finding]:
    """Return for each pooling which layer reads the labels best, by the linear probe where there is one, else kNN."""
    linear = [curve for curve in curves if curve.metric == "linear_probe"]
    shown = linear or [curve for curve in curves if curve.metric == "knn_probe"]
    several = len({curve.pooling for curve in shown}) > 1
    findings = []
    for probe in (Probe(run, curve) for curve in shown):
        if probe.points:
            where = f", {pooling_name(probe.curve.pooling)}" if several else ""
            findings.append(probe.finding(where))
    return findings


def _share_of_largest(labels: pd.Series | None) -> float:
    """Return the share of the most frequent label among those that a probe judges; NaN where there are none."""
    sizes = [] if labels is None else [n for n in labels.value_counts() if n >= WHOLE]
    return max(sizes) / sum(sizes) if sizes else math.nan


class Probe:
    """The accuracies of a probe by layer from 1 on, the last one after its norm, and the layers with the highest.

    The last layer is the model's, unless the states were read from files that may hold only some.
    """

    def __init__(self, run: "Run", curve: Curve) -> None:
        self.curve, self.end = curve, curve.layers[-1]
        self.hits = hits_of(run, curve)
        self.total, self.known_labels = drawn_from(run), run.folder.labels()
        self.chance = _share_of_largest(self.known_labels)
        self.whole = run.has_model or bool(run.info["model"].get("whole"))
        as_shipped = self.whole and run.info["options"].get("pooling") == "auto"
        self.shipped = "the model as shipped" if as_shipped else "the last layer"
        points = {layer: curve.at(layer) for layer in curve.layers if layer >= 1}
        points[self.end] = curve.last()
        self.points = {
            layer: point for layer, point in points.items() if math.isfinite(point[0])
        }
        highest = max((value for value, _ in self.points.values()), default=math.nan)
        self.tops = [
            layer for layer, (value, _) in self.points.items() if value == highest
        ]

    @property
    def labels(self) -> str:
        """Whose labels the probe reads, and of how many they were drawn."""
        labels = f"your {count(self.total or self.curve.n, 'label')}"
        return f"{self.curve.n:,} of {labels}" if self.total else labels

    @property
    def judged(self) -> Judged | None:
        """What the probe judges; None where the labels are not known."""
        if self.known_labels is None:
            return None
        judged = Judged.of(self.known_labels, self.total is not None)
        return replace(judged, n=self.curve.n)

    def text(self, layer: int) -> str:
        """Return the accuracy at a layer, in words."""
        return value_text(self.curve, *self.points[layer])

    def is_within(self, one: int, other: int) -> bool | None:
        """Return whether two layers do not differ measurably, paired over samples as `select` does; None if unknown."""
        if not {one, other} <= self.hits.keys():
            return is_within(self.points[one], self.points[other])
        apart = self.hits[one] - self.hits[other]
        clear = differs(float(apart.mean()), error_of(apart))
        return None if clear is None else not clear

    def above_chance(self, point: Point) -> bool | None:
        """Return whether an accuracy is above that of the most frequent label; None where that is not known."""
        value, stderr = point
        if not math.isfinite(self.chance) or not math.isfinite(value):
            return None
        return value > self.chance + (
            INTERVAL * stderr if math.isfinite(stderr) else 0.0
        )

    def finding(self, where: str) -> Finding:
        """Return which layer reads the labels best."""
        layer = self.end if self.end in self.tops else self.tops[0]
        above, judged = self.above_chance(self.points[layer]), self.judged
        share = (
            f"always guessing the most frequent label gives {100 * self.chance:.1f} %"
        )
        is_flat = 1 < len(self.tops) == len(self.points)
        answer, text = self._answer(), ""
        if judged is not None and judged.lacking:
            answer = f"no layer is named: {judged.lacking}"
        elif above is False:
            answer = "no layer reads the labels above chance: the highest has "
            answer += f"{self.text(layer)}, and {share}"
        else:
            text += f"; {share}" if above else ""
            text += f". Judged: {judged.text}" if judged else ""
        is_named = (
            above is not False and not is_flat and not (judged and judged.lacking)
        )
        last = self.curve.last()
        numbers: Numbers = {
            "metric": self.curve.metric,
            "pooling": self.curve.pooling,
            "layer": layer if is_named else None,
            "value": self.points[layer][0],
            "stderr": self.points[layer][1],
            "last": last[0],
            "last_stderr": last[1],
            "within_error": self._within(),
            "ties": len(self.tops),
            "chance": self.chance,
            "above_chance": above,
        }
        title = f"{capital(self.curve.title)}{where}"
        return Finding(
            "best_layer", f"{title}: {answer}{text}.", numbers, capital(answer)
        )

    def _within(self) -> bool | None:
        """Return whether the best layer is within the error of the last one, or the last of the next best."""
        others = [layer for layer in self.points if layer != self.end]
        if self.end not in self.points or not others:
            return None
        rival = max(others, key=lambda layer: self.points[layer][0])
        return self.is_within(rival, self.end)

    def _answer(self) -> str:
        """Return which layer to take."""
        top, best = f"layer {self.tops[0]} of {self.end}", self.text(self.tops[0])
        if 1 < len(self.tops) == len(self.points):
            return f"every layer from 1 on reads {self.labels} alike, at {best}"
        within = self._within()
        if self.tops == [self.end] and not within:
            keep = "keep the whole model: its" if self.whole else "the"
            return f"{keep} last layer reads {self.labels} best, at {best}"
        if within is None:
            return f"{top} reads {self.labels} best, at {best}; how sure that is, is not known"
        if within:
            others = [layer for layer in self.points if layer != self.end]
            near = [layer for layer in others if self.is_within(self.tops[0], layer)]
            tie = tied([*self.points], near, self.shipped)
            name = "the last layer" if self.tops == [self.end] else named(self.tops)
            return f"{tie} on {self.labels}; the best, {name}, has {best}"
        last = self.text(self.end)
        return f"use {top}: it reads {self.labels} at {best}, {self.shipped} at {last}"
