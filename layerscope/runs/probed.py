"""Which layer of a run reads the labels best, in sentences.

A layer is named only where probes can tell: where enough samples of enough classes are judged, and
the best layer is above always guessing the most frequent label. Layers are compared on the same
samples, so that the error of their difference is that of the hits and misses by sample. A layer
that is not measurably better than the last one is a tie, in favour of the whole model.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from layerscope.core import capital, count
from layerscope.core.labels import WHOLE, Judged, is_target
from layerscope.core.margin import INTERVAL, differs, error_of, named, tied
from layerscope.runs.curves import Curve, value_text
from layerscope.runs.run import Run
from layerscope.show.plain import pooling_name

HITS = "samples.probes"
"""The table that says which samples each probe gets right at each layer."""
Numbers = dict[str, float | int | str | bool | None]
Point = tuple[float, float]
"""Value and standard error."""


@dataclass(frozen=True)
class Finding:
    """One sentence about a run, and the numbers it was made of; `answer` is what it has to say in the first line."""

    name: str
    text: str
    numbers: Numbers
    answer: str


def is_within(a: Point, b: Point) -> bool | None:
    """Return whether two values differ by no more than the error of their difference.

    It is None where it is unknown.
    """
    # The error of unrelated samples. Layers are measured on the same samples, whose errors mostly
    # cancel in the difference: without the hits of each sample this rather says "within" where it
    # is not.
    error = math.hypot(a[1], b[1])
    apart = differs(a[0] - b[0], error)
    return None if apart is None else not apart


def hits_of(run: Run, curve: Curve) -> pd.DataFrame:
    """Return by sample and layer whether a probe is right, 1, or wrong, 0.

    There is nothing where a run does not know.
    """
    if not run.folder.has_table(HITS):
        return pd.DataFrame()
    rows = run.folder.read_table(HITS)
    is_curve = (rows["metric"] == curve.metric) & (rows["pooling"] == curve.pooling)
    by_layer = rows[is_curve].pivot(index="sample", columns="layer", values="value")
    return by_layer.dropna()


def drawn_from(run: Run) -> int | None:
    """Return of how many samples those of a run were drawn.

    It is None where it has them all.
    """
    streamed: int | None = run.info.get("stream", {}).get("samples")
    return streamed or run.info["data"].get("drawn_from")


def probed(run: Run, curves: list[Curve]) -> list[Finding]:
    """Return for each pooling which layer reads the labels best, by the linear probe where there is one, else kNN."""
    by_metric = defaultdict[str, list[Curve]](list)
    for curve in curves:
        by_metric[curve.metric].append(curve)
    of_numbers = by_metric["ridge_probe"]
    shown = by_metric["linear_probe"] or of_numbers or by_metric["knn_probe"]
    several = len({curve.pooling for curve in shown}) > 1
    findings = []
    for curve in shown:
        probe = Probe(run, curve)
        if probe.points:
            where = f", {pooling_name(curve.pooling)}" * several
            findings.append(probe.finding(where))
    return findings


def _share_of_largest(labels: pd.Series | None) -> float:
    """Return the share of the most frequent label among those that a probe judges; NaN where there are none.

    Of numbers it is 0, the R² of their mean.

    >>> _share_of_largest(pd.Series(["a"] * 6 + ["b"] * 18 + ["c"])), _share_of_largest(pd.Series([0.5, 1.25]))
    (0.75, 0.0)
    """
    if labels is None:
        return math.nan
    if is_target(labels):
        return 0.0
    sizes = labels.value_counts()
    judged = sizes[sizes >= WHOLE]
    return float(judged.max() / judged.sum())


class Probe:
    """The accuracies of a probe by layer from 1 on, the last one after its norm, and the layers with the highest.

    The last layer is the model's, unless the states were read from files that may hold only some.
    """

    def __init__(self, run: Run, curve: Curve) -> None:
        self.curve = curve
        self.end = curve.layers[-1]
        self.hits = hits_of(run, curve)
        labels = run.folder.labels()
        total = drawn_from(run)
        self.chance = _share_of_largest(labels)
        self.judged: Judged | None = None
        if labels is not None:
            self.judged = replace(Judged.of(labels, total is not None), n=curve.n)
        self.labels = f"your {count(total or curve.n, 'label')}"
        if total:
            self.labels = f"{curve.n:,} of {self.labels}"
        self.whole = run.has_model or bool(run.info["model"].get("whole"))
        self.shipped = "the last layer"
        if self.whole and run.info["options"].get("pooling") == "auto":
            self.shipped = "the model as shipped"
        self.points: dict[int, Point] = {}
        for layer in curve.layers:
            point = curve.at(layer)
            if layer == self.end:
                point = curve.last()
            if layer >= 1 and math.isfinite(point[0]):
                self.points[layer] = point
        highest = max(self.points.values(), default=(math.nan,))[0]
        self.tops = [layer for layer in self.points if self.points[layer][0] == highest]
        self.is_flat = 1 < len(self.tops) == len(self.points)
        self.others = [layer for layer in self.points if layer != self.end]

    def text(self, layer: int) -> str:
        """Return the accuracy at a layer, in words."""
        return value_text(self.curve.about, *self.points[layer])

    def is_within(self, one: int, other: int) -> bool | None:
        """Return whether two layers do not differ measurably, paired over samples as `select` does.

        It is None if unknown.
        """
        if not {one, other} <= {*self.hits}:
            return is_within(self.points[one], self.points[other])
        difference = (self.hits[one] - self.hits[other]).to_numpy(np.float64)
        apart = differs(float(difference.mean()), error_of(difference))
        return None if apart is None else not apart

    def finding(self, where: str) -> Finding:
        """Return which layer reads the labels best."""
        layer = self.end if self.end in self.tops else self.tops[0]
        value, stderr = self.points[layer]
        last, last_stderr = self.curve.last()
        above = None  # where no label is known
        if math.isfinite(self.chance):
            margin = INTERVAL * stderr if math.isfinite(stderr) else 0.0
            above = value > self.chance + margin
        guess = "the most frequent label"
        if self.curve.metric == "ridge_probe":
            guess = "the mean"
        chance = f"always guessing {guess} gives {100 * self.chance:.1f} %"
        answer = self._answer()
        by = text = ""
        is_named = not self.is_flat
        if self.judged is not None and self.judged.lacking:
            answer = f"no layer is named: {self.judged.lacking}"
            is_named = False
        elif above is False:
            highest = f"the highest has {self.text(layer)}, and {chance}"
            answer = f"no layer reads the labels above chance: {highest}"
            by = f"{self.curve.title}: "  # another probe may read them
            is_named = False
        else:
            if above:
                text += f"; {chance}"
            if self.judged is not None:
                text += f". Judged: {self.judged.text}"
        numbers = {
            "metric": self.curve.metric,
            "pooling": self.curve.pooling,
            "layer": layer if is_named else None,
            "value": value,
            "stderr": stderr,
            "last": last,
            "last_stderr": last_stderr,
            "within_error": self._within(),
            "ties": len(self.tops),
            "chance": self.chance,
            "above_chance": above,
        }
        title = f"{capital(self.curve.title)}{where}"
        sentence = f"{title}: {answer}{text}."
        return Finding("best_layer", sentence, numbers, capital(by + answer))

    def _within(self) -> bool | None:
        """Return whether the best layer is within the error of the last one, or the last of the next best."""
        if self.end not in self.points or not self.others:
            return None
        rival = max(self.others, key=lambda layer: self.points[layer][0])
        return self.is_within(rival, self.end)

    def _answer(self) -> str:
        """Return which layer to take."""
        top = f"layer {self.tops[0]} of {self.end}"
        best = self.text(self.tops[0])
        if self.is_flat:
            return f"every layer from 1 on reads {self.labels} alike, at {best}"
        within = self._within()
        is_last = self.tops == [self.end]
        if is_last and not within:
            keep = "keep the whole model: its" if self.whole else "the"
            return f"{keep} last layer reads {self.labels} best, at {best}"
        if within is None:
            return f"{top} reads {self.labels} best, at {best}; how sure that is, is not known"
        if within:
            near = [
                layer for layer in self.others if self.is_within(self.tops[0], layer)
            ]
            tie = tied([*self.points], near, self.shipped)
            name = "the last layer" if is_last else named(self.tops)
            return f"{tie} on {self.labels}; the best, {name}, has {best}"
        last = self.text(self.end)
        return f"use {top}: it reads {self.labels} at {best}, {self.shipped} at {last}"
