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

VERDICTS = {
    None: "the error of the difference is unknown",
    True: "the difference is within the margin of error",
    False: "the difference exceeds the margin of error",
}
HITS = "samples.probes"
"""The table that says which samples each probe gets right at each layer."""
Floats = npt.NDArray[np.float64]
Numbers = dict[str, float | int | str | bool | None]
Point = tuple[float, float]
"""Value and standard error."""
Ranking = tuple[str, str, bool | None]
"""A sentence, an answer, and whether the difference to the next or last layer is within its error."""


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
    whole: int | None = run.info.get("stream", {}).get("samples") or run.info["data"].get(
        "drawn_from"
    )
    return whole


def probed(run: "Run", curves: list[Curve]) -> list[Finding]:
    """Return for each pooling which layer reads the labels best, by the linear probe where there is one, else kNN."""
    linear, nearest = (
        [c for c in curves if c.metric == name] for name in ("linear_probe", "knn_probe")
    )
    labels, total = run.folder.labels(), drawn_from(run)
    chance = _share_of_largest(labels)
    whole = run.has_model or bool(run.info["model"].get("whole"))
    last = _name_of_last(run, whole)
    beside = {c.pooling: Probe(c, chance, {}) for c in nearest} if linear else {}
    several = len({c.pooling for c in linear + nearest}) > 1
    findings = []
    for curve in linear or nearest:
        probe = Probe(curve, chance, hits_of(run, curve), whole, total)
        if not probe.points:
            continue
        where = f", {pooling_name(curve.pooling)}" if several else ""
        judged = None
        if labels is not None:
            judged = replace(Judged.of(labels, probe.sampled), n=curve.n)
        findings.append(probe.finding(where, judged, last, beside.get(curve.pooling)))
    return findings


def _share_of_largest(labels: pd.Series | None) -> float:
    """Return the share of the most frequent label among those that a probe judges; NaN where there are none."""
    sizes = [] if labels is None else [n for n in labels.value_counts() if n >= WHOLE]
    return max(sizes) / sum(sizes) if sizes else math.nan


def _name_of_last(run: "Run", whole: bool) -> str:
    """Return what the last layer is called beside a better one; `whole` is whether it is the model's last."""
    if not whole:
        return "the last layer here"
    is_auto = run.info["options"].get("pooling") == "auto"
    return "the model as shipped" if is_auto else "the last layer"


class Probe:
    """The accuracies of a probe by layer from 1 on, the last one after its norm, and the layers with the highest.

    `chance` is the share of the most frequent label, NaN where it is not known; `hits` are those of
    each layer, by which differences are paired, as far as they are known; `whole` is whether
    the last layer is known to be the model's, and not that of the states that some files hold;
    `total` is of how many labels these were drawn.
    """

    def __init__(
        self,
        curve: Curve,
        chance: float,
        hits: dict[int, Floats],
        whole: bool = True,
        total: int | None = None,
    ) -> None:
        self.curve, self.chance, self.whole, self.end = curve, chance, whole, curve.layers[-1]
        self.hits = hits
        self.sampled = total is not None
        labels = f"your {count(total or curve.n, 'label')}"
        self.labels = f"{curve.n:,} of {labels}" if total else labels
        points = {
            layer: curve.last() if layer == self.end else curve.at(layer)
            for layer in curve.layers
            if layer >= 1
        }
        self.points = {layer: point for layer, point in points.items() if math.isfinite(point[0])}
        highest = max((value for value, _ in self.points.values()), default=math.nan)
        self.tops = [layer for layer, (value, _) in self.points.items() if value == highest]
        self.alike = 1 < len(self.tops) == len(self.points)

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

    def is_above(self, point: Point) -> bool | None:
        """Return whether an accuracy is above that of the most frequent label; None where that is not known."""
        value, stderr = point
        if not math.isfinite(self.chance) or not math.isfinite(value):
            return None
        return value > self.chance + (INTERVAL * stderr if math.isfinite(stderr) else 0.0)

    def finding(
        self, where: str, judged: Judged | None, last: str, nearest: "Probe | None"
    ) -> Finding:
        """Return which layer reads the labels best; `last` is what the last layer is called beside a better one."""
        curve, tops, at_start = self.curve, self.tops, self.curve.at(0)
        layer = self.end if self.end in tops else tops[0]
        above, start_above = self.is_above(self.points[layer]), self.is_above(at_start)
        share = f"always guessing the most frequent label gives {100 * self.chance:.1f} %"
        within = None
        if above is False:
            text = f"no layer{' from 1 on' if start_above else ''} reads the labels above chance: the highest has "
            text += f"{self.text(layer)}, and {share}."
            answer = capital(text[:-1])
        else:
            text, answer, within = self._ranked(last)
            text += "." if above is None else f"; {share}."
        if at_start[0] > self.points[layer][0] and (start_above or above is not False):
            text += f" Layer 0, what the first block reads, has {value_text(curve, *at_start)} and is not a candidate."
        if (
            nearest is not None
            and nearest.tops
            and nearest.is_above(nearest.points[nearest.tops[0]]) is not False
        ):
            others = nearest.tops
            if above is False or not set(others) & set(tops):
                text += f" The kNN probe is best at {named(others)}, {nearest.text(others[0])}."
        lacking = "" if judged is None else judged.lacking
        if lacking:
            text = f"no layer is named: {lacking}."
            answer = capital(text[:-1])
        elif judged is not None:
            text = f"{text} Judged: {judged.text}."
        at_end = curve.last()
        numbers: Numbers = {
            "metric": curve.metric,
            "pooling": curve.pooling,
            "layer": None if lacking or above is False or self.alike else layer,
            "value": self.points[layer][0],
            "stderr": self.points[layer][1],
            "last": at_end[0],
            "last_stderr": at_end[1],
            "within_error": within,
            "ties": len(tops),
            "chance": self.chance,
            "above_chance": above,
        }
        return Finding("best_layer", f"{capital(curve.title)}{where}: {text}", numbers, answer)

    def _ranked(self, shipped: str) -> Ranking:
        """Return which layers read the labels best, which to take, and whether the difference is within its error."""
        end, tops, best = self.end, self.tops, self.text(self.tops[0])
        if not self.whole and len(self.points) == 1:
            return self._only_one()
        if self.alike:
            return self._all_alike()
        text = f"{'the last layer' if tops == [end] else named(tops)} reads the labels best, {best}"
        if len(tops) > 1:
            text = f"{named(tops)} tie for the best at {best}"
            if end in tops:
                return text, self._last_is_enough(shipped), True
        if end not in self.points:
            lack = "the last layer has no value"
            return f"{text}; {lack}", f"{self._lead}; {lack}", None
        if tops == [end]:
            return self._last_is_best(text, shipped)
        return self._last_is_behind(text, shipped)

    @property
    def _top(self) -> str:
        """The first of the best layers, of a whole model with its depth."""
        return f"layer {self.tops[0]} of {self.end}" if self.whole else f"layer {self.tops[0]}"

    @property
    def _lead(self) -> str:
        return f"{capital(self._top)} reads {self.labels} best, at {self.text(self.tops[0])}"

    def _only_one(self) -> Ranking:
        best, alone = self.text(self.tops[0]), "no other layer is there to compare it with"
        answer = f"{capital(self._top)} reads {self.labels} at {best}: {alone}"
        return f"{self._top} has {best}; {alone}", answer, None

    def _all_alike(self) -> Ranking:
        best, top = self.text(self.tops[0]), self.points[self.tops[0]][0]
        layers = "every layer" if self.curve.at(0)[0] == top else "every layer from 1 on"
        answer = f"Every layer from 1 on reads {self.labels} alike, at {best}"
        return f"{layers} reads the labels alike, {best}", answer, True

    def _last_is_enough(self, shipped: str) -> str:
        """Return the answer where no layer is measurably better than the last."""
        end, tops, best = self.end, self.tops, self.text(self.tops[0])
        near = [layer for layer in self.points if layer != end and self.is_within(tops[0], layer)]
        if near:
            name = "the last layer" if tops == [end] else named(tops)
            tie = capital(tied([*self.points], near, shipped))
            return f"{tie} on {self.labels}; the best, {name}, has {best}"
        keep = f"Of these layers the last, layer {end},"
        if self.whole:
            keep = "Keep the whole model: its last layer"
        return f"{keep} reads {self.labels} best, at {best}"

    def _last_is_best(self, text: str, shipped: str) -> Ranking:
        answer = self._last_is_enough(shipped)
        others = [layer for layer in self.points if layer != self.end]
        if not others:
            return text, answer, None
        rival = max(others, key=lambda layer: self.points[layer][0])
        within = self.is_within(self.end, rival)
        second = f"next best from layer 1 on is layer {rival}, with {self.text(rival)}"
        return f"{text}; {second}; {VERDICTS[within]}", answer, within

    def _last_is_behind(self, text: str, shipped: str) -> Ranking:
        best, last = self.text(self.tops[0]), self.text(self.end)
        within = self.is_within(self.tops[0], self.end)
        if within is None:
            answer = f"{self._lead}, and {shipped} at {last}; {VERDICTS[None]}"
        elif within:
            answer = self._last_is_enough(shipped)
        else:
            answer = f"Use {self._top}: it reads {self.labels} at {best}, {shipped} at {last}"
        return f"{text} against {last} at the last layer; {VERDICTS[within]}", answer, within
