"""From scores and bounds to the choice."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.probes.margin import differs
from layerscope.selection.by_score import (
    BY_SCORE,
    SHIPPED,
    SURE,
    Scored,
    best_of,
    in_points,
    mean_of,
    one_standard_error,
    within_loss,
)
from layerscope.selection.selection import Apart, Candidate, OfTask, Selection
from layerscope.truncation.costs import Cost, Costs

DEFAULT = "best-if-clear"
UNLABELLED = "without labels or scores of tasks nothing tells which layer serves best"
Choose = Callable[[Scored], int]


@dataclass(frozen=True)
class Bound:
    """A limit on one field of a `Cost`, by the name of its option: the most there may be, or the least."""

    name: str
    limit: float
    unit: str
    field: str
    is_least: bool = False

    def allows(self, cost: Cost) -> bool:
        """Return whether a cost is on the right side of the limit."""
        value: float = getattr(cost, self.field)
        return value >= self.limit if self.is_least else value <= self.limit

    def refusal(self, costs: Sequence[Cost]) -> str | None:
        """Return what to say where none of these costs is allowed, None where one is."""
        if any(map(self.allows, costs)):
            return None
        values = [getattr(cost, self.field) for cost in costs]
        name, end = f"{self.name} {self.limit:g}", "every layer that may be chosen"
        if self.is_least:
            return f"{name} is above what {end} reaches: the most is {max(values, default=0):.4g} {self.unit}"
        return f"{name} is below what {end} takes: the least is {min(values, default=math.inf):.4g} {self.unit}"


@dataclass(frozen=True)
class Budget:
    """Bounds on the points lost, on milliseconds per sample, speed and megabytes; None is no bound."""

    max_loss: float | None = None
    max_ms: float | None = None
    min_speedup: float | None = None
    max_mb: float | None = None

    @property
    def costs(self) -> tuple[Bound, ...]:
        """The bounds on time, speed and size."""
        bounds = (
            (self.max_ms, partial(Bound, "max_ms", unit="ms", field="milliseconds")),
            (
                self.min_speedup,
                partial(Bound, "min_speedup", unit="× as fast", field="speedup", is_least=True),
            ),
            (self.max_mb, partial(Bound, "max_mb", unit="MB", field="megabytes")),
        )
        return tuple(bound(limit=limit) for limit, bound in bounds if limit is not None)

    @property
    def within(self) -> str:
        """The bounds on time, speed and size, as they end a sentence; empty where there are none."""
        bounds = [f"{bound.limit:g} {bound.unit}" for bound in self.costs if not bound.is_least]
        faster = "" if self.min_speedup is None else f" at least {self.min_speedup:g} × as fast"
        return (f" within {' and '.join(bounds)}" if bounds else "") + faster

    def allows(self, cost: Cost | None) -> bool:
        """Return whether a depth of this cost is within the bounds on time, speed and size."""
        return not self.costs or (
            cost is not None and all(bound.allows(cost) for bound in self.costs)
        )

    def layers(self, layers: Sequence[int], costs: Mapping[int, Cost]) -> tuple[int, ...]:
        """Return the layers within the bounds on time, speed and size; raises with what is possible where none is."""
        kept = tuple(layer for layer in layers if self.allows(costs.get(layer)))
        if kept:
            return kept
        there = [costs[layer] for layer in layers if layer in costs]
        for refusal in (bound.refusal(there) for bound in self.costs):
            if refusal is not None:
                raise LayerscopeError(refusal)
        raise LayerscopeError(
            f"no layer that may be chosen is{self.within}: allow more of one of them"
        )


@dataclass(frozen=True)
class Case:
    """One model to choose a layer of: its scores and costs, as far as they are known, and the bounds.

    `about` are the fields of a `Selection` that say which model this is.
    """

    about: dict[str, Any]
    budget: Budget
    first_layer: int
    depth: int
    scored: Scored | None
    costs: Costs | None
    there: tuple[int, ...] = ()
    """The layers of a run that has some of the model's alone."""

    @property
    def layers(self) -> tuple[int, ...]:
        """Every layer there is."""
        return (
            (self.there or tuple(range(self.depth + 1)))
            if self.scored is None
            else self.scored.layers
        )

    @property
    def last(self) -> int:
        """L where it is known, else the last layer there is."""
        return self.depth or self.layers[-1]

    def candidates(self) -> tuple[int, ...]:
        """Return the layers that may be chosen; raises where none is left."""
        there = [layer for layer in self.layers if layer >= self.first_layer]
        return self.budget.layers(there, {} if self.costs is None else self.costs.layers)

    def fits_as_shipped(self) -> bool:
        """Return whether the model as shipped is within the bounds."""
        return self.budget.allows(None if self.costs is None else self.costs.full)


def by_scores(case: Case, scored: Scored, rule: str | None) -> Selection:
    """Return the choice by scores: the shallowest within a loss where one is allowed, else the rule's.

    Where too little was judged it is the model as shipped.
    """
    baseline, most = scored.baseline, case.budget.max_loss
    if scored.lacking:
        return _selection(case, baseline, "none", scored.lacking)
    columns = [case.layers.index(layer) for layer in case.candidates()] + (
        [baseline] if case.fits_as_shipped() else []
    )
    name = rule or (DEFAULT if most is None else "max-loss")

    def allowed(scores: Scored) -> Sequence[int]:
        return columns if most is None else within_loss(scores, columns, most / scores.points)

    def choose(scores: Scored) -> int:
        return allowed(scores)[0] if name == "max-loss" else BY_SCORE[name](scores, allowed(scores))

    chosen = choose(scored)
    apart = None if chosen == baseline else _by_block(scored, choose)
    if (held := scored.held) is not None:
        layers = ((None if chosen == baseline else held.layers[chosen], len(held.values)),)
        score, error = float(held.means[chosen]), _known(held.errors[chosen])
        apart = Apart(score, error, *held.difference(chosen, baseline), layers, "sample")
    within = _within(case, scored, columns) if name == DEFAULT else ()
    return _selection(
        case,
        chosen,
        name,
        _why(case, scored, name, chosen, allowed(scored)),
        apart=apart,
        within=within,
        by_task=tuple(_of_task(task, choose, case.last) for task in scored.by_task),
    )


def _within(case: Case, scored: Scored, columns: Sequence[int]) -> tuple[int, ...]:
    """Return the layers that do not differ measurably from the best one, which is not among them, nor the last."""
    best = best_of(scored, columns)
    others = (
        i for i in columns if i not in (best, scored.baseline) and scored.layers[i] != case.last
    )
    within = {scored.layers[i] for i in others if scored.is_within(i, best)}
    if best != scored.baseline and scored.is_within(scored.baseline, best):
        within.add(scored.layers[best])
    return tuple(sorted(within - {case.last}))


def _by_block(scored: Scored, choose: Choose) -> Apart | None:
    """Return what the choice scores where every block is judged at the layer that the others choose."""
    if scored.blocks is None:
        return None
    blocks, block_of = np.unique(scored.blocks, return_inverse=True)
    try:
        led = np.array([choose(scored.without(block)) for block in blocks])
    except LayerscopeError:  # without some block no layer is within the loss that is allowed
        return None
    values = np.take_along_axis(scored.values, led[block_of][:, None], 1)[:, 0]
    score, error = mean_of(values, scored.weights)
    difference, difference_error = mean_of(
        values - scored.values[:, scored.baseline], scored.weights
    )
    counts = Counter(
        None if column == scored.baseline else scored.layers[column] for column in led.tolist()
    )
    is_sample = scored.unit == "sample"
    return Apart(
        score,
        error if is_sample else None,
        difference,
        difference_error,
        tuple(counts.most_common()),
        "fold" if is_sample else "task",
    )


def _of_task(scored: Scored, choose: Choose, last: int) -> OfTask:
    """Return what one task alone would choose, or the baseline where no layer is within the loss allowed."""
    try:
        column = choose(scored)
    except LayerscopeError:
        column = scored.baseline
    difference, error = scored.difference(column, scored.baseline)
    shipped = column == scored.baseline
    layer = last if shipped else scored.layers[column]
    return OfTask(
        scored.title, layer, shipped, float(scored.means[column]), difference, _known(error)
    )


def without_scores(case: Case) -> Selection:
    """Return the model as shipped, or where that is not within the bounds the deepest layer that is."""
    if case.fits_as_shipped():
        return _selection(case, len(case.layers), "baseline", UNLABELLED)
    deepest = case.layers.index(case.candidates()[-1])
    return _selection(
        case, deepest, "deepest", f"the deepest layer{case.budget.within}: {UNLABELLED}"
    )


def _why(case: Case, scored: Scored, name: str, chosen: int, columns: Sequence[int]) -> str:
    best, within = best_of(scored, columns), case.budget.within
    at, shallowest, less = scored.name(best), "the shallowest layer", "no shallower layer"
    skipped = (i for i, layer in enumerate(scored.layers) if layer < case.first_layer)
    if any(one_standard_error(scored, (i, best)) == i for i in skipped):
        less = f"from layer {case.first_layer} on, {less}"
    if name == "max-loss":
        most = case.budget.max_loss or 0
        if chosen == scored.baseline:
            return f"{less} loses at most {in_points(most)}{within}; {scored.name(chosen)} loses nothing"
        difference, error = scored.difference(chosen, scored.baseline)
        sure = f"; {'' if (SURE * error - difference) * scored.points <= most + 1e-9 else 'not '}certain"
        sure = f"{sure} at {SURE:g} standard errors" if error else ""
        known = sure if math.isfinite(error) else "; its error is unknown"
        return f"{shallowest} that loses at most {in_points(most)}{within}{known}"
    if name == "best":
        return f"the best score{within}"
    if name == DEFAULT:
        return _why_clear(scored, best, chosen, within)
    if chosen == best:
        return f"the best score{within}; {less} comes within one standard error of it"
    if scored.means[chosen] >= scored.means[best]:
        return f"as good as the best, {at}{within}"
    of = (
        f"paired over {len(scored.values):,} {scored.unit}s"
        if scored.is_paired
        else "of the best score"
    )
    return f"{shallowest} within one standard error ({of}) of the best, {at}{within}"


def _why_clear(scored: Scored, best: int, chosen: int, within: str) -> str:
    baseline = scored.baseline
    if best == baseline:
        return f"{scored.name(baseline)} has the best score"
    if chosen == baseline:
        return f"no layer is measurably better than {scored.name(baseline)}"
    if not math.isfinite(scored.difference(best, baseline)[1]):
        return f"the best score{within}; the error of its difference is unknown"
    clear = differs(*scored.difference(best, baseline))
    return f"the best score{within}" + (
        f", measurably above {scored.name(baseline)}" if clear else ""
    )


def _selection(case: Case, chosen: int, rule: str, why: str, **more: Any) -> Selection:
    scored, baseline = case.scored, len(case.layers)
    rows = tuple(_candidate(case, column) for column in range(baseline))
    shown = _candidate(case, baseline)
    found = (*rows, shown)[chosen]
    alike = scored is None or np.allclose(
        scored.values[:, chosen], scored.values[:, -1], rtol=0, atol=1e-12
    )
    shipped = chosen == baseline or (found.layer == case.last and bool(alike))
    about = {**case.about, "baseline_name": SHIPPED, "measured": case.costs and case.costs.measured}
    if scored is not None:
        whole = [i for i, layer in enumerate(case.layers) if layer >= case.first_layer]
        about |= {
            "best": case.layers[best_of(scored, whole)],
            "scored_on": scored.title,
            "share": scored.share,
        }
        about |= {
            "basis": scored.basis,
            "lacking": scored.lacking,
            "baseline_name": scored.baseline_name,
        }
    judged = more.get("apart") or found
    gain, error = (0.0, 0.0) if shipped else (judged.difference, judged.difference_error)
    return Selection(
        layer=found.layer,
        depth=case.last,
        as_shipped=shipped,
        rule=rule,
        why=why,
        gain=gain,
        gain_error=error,
        baseline=shown,
        layers=rows,
        **about | more,
    )


def _candidate(case: Case, column: int) -> Candidate:
    """Return what is known of one layer, or in the last column of the model as shipped."""
    scored, costs, is_baseline = case.scored, case.costs, column == len(case.layers)
    layer = case.last if is_baseline else case.layers[column]
    known: dict[str, Any] = {}
    if (
        costs is not None
        and (cost := costs.full if is_baseline else costs.layers.get(layer)) is not None
    ):
        known |= vars(cost)
    if scored is not None:
        difference, error = scored.difference(column, scored.baseline)
        known |= {"score": float(scored.means[column]), "stderr": _known(scored.errors[column])}
        known |= {"difference": difference, "difference_error": _known(error)}
    return Candidate(layer, **known)


def _known(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
