"""From scores and bounds to the choice.

The columns within the bounds are the candidates, and a rule takes one of them. What the choice will
gain is judged on data that had no part in it: each block of units (a fold, or a task) is judged at
the column that all other blocks choose. If folds 0 to 3 choose layer 4 and fold 4 layer 3, then the
gain is that of layer 4 on the samples of four folds, and of layer 3 on those of the fifth.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.core.margin import differs
from layerscope.selection.options import Budget
from layerscope.selection.scored import (
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
from layerscope.truncation.costs import Costs

DEFAULT = "best-if-clear"
MAX_LOSS = "max-loss"
UNLABELLED = "without labels or scores of tasks nothing tells which layer serves best"
Choose = Callable[[Scored], int]


@dataclass(frozen=True)
class Case:
    """One model to choose a layer of: its layers, their scores and costs as far as they are known, and the bounds.

    `about` are the fields of a `Selection` that say which model this is; `depth` is L, 0 where it
    is not known.
    """

    about: dict[str, Any]
    layers: tuple[int, ...]
    depth: int
    scored: Scored | None
    costs: Costs | None
    budget: Budget = Budget()
    first_layer: int = 1

    @property
    def last(self) -> int:
        """L where it is known, else the last layer there is."""
        return self.depth or self.layers[-1]

    @property
    def baseline(self) -> int:
        """Column of the model as shipped, behind the layers."""
        return len(self.layers)

    def columns(self) -> list[int]:
        """Return the columns within the bounds on cost; raises where no layer is."""
        costs = {} if self.costs is None else self.costs.layers
        candidates = [layer for layer in self.layers if layer >= self.first_layer]
        return [self.layers.index(layer) for layer in self.budget.layers(candidates, costs)]

    def fits_as_shipped(self) -> bool:
        """Return whether the model as shipped is within the bounds."""
        return self.budget.allows(None if self.costs is None else self.costs.full)

    def candidate(self, column: int) -> Candidate:
        """Return what is known of one layer, or in the last column of the model as shipped."""
        is_baseline = column == self.baseline
        layer = self.last if is_baseline else self.layers[column]
        facts: dict[str, Any] = {}
        if self.costs is not None:
            cost = self.costs.full if is_baseline else self.costs.layers.get(layer)
            facts |= {} if cost is None else vars(cost)
        if self.scored is not None:
            difference, error = self.scored.difference(column, self.scored.baseline)
            facts["score"] = float(self.scored.means[column])
            facts["stderr"] = _finite(self.scored.errors[column])
            facts["difference"] = difference
            facts["difference_error"] = _finite(error)
        return Candidate(layer, **facts)


def choose_layer(case: Case, rule: str | None = None) -> Selection:
    """Return the choice by scores where there are any: the shallowest within a loss allowed, else the rule's.

    Where too little was judged it is the model as shipped.
    """
    scored, most = case.scored, case.budget.max_loss
    if scored is None:
        return _without_scores(case)
    if scored.lacking:
        return _selection(case, scored.baseline, "none", scored.lacking)
    name = rule or (DEFAULT if most is None else MAX_LOSS)
    columns = case.columns()
    if case.fits_as_shipped():
        columns.append(scored.baseline)

    def choose(scores: Scored) -> int:
        allowed = columns
        if most is not None:
            allowed = within_loss(scores, columns, most / scores.points)
        return allowed[0] if name == MAX_LOSS else BY_SCORE[name](scores, allowed)

    chosen = choose(scored)
    why = _why(case, scored, name, chosen, columns)
    apart = None
    if scored.held is not None:
        apart = _held_out(scored.held, chosen)
    elif chosen != scored.baseline:
        apart = _by_block(scored, choose)
    by_task = tuple(_of_task(task, choose, case.last) for task in scored.by_task)
    within = _within(case, scored, columns) if name == DEFAULT else ()
    return _selection(case, chosen, name, why, apart=apart, within=within, by_task=by_task)


def _without_scores(case: Case) -> Selection:
    """Return the model as shipped, or where that is not within the bounds the deepest layer that is."""
    if case.fits_as_shipped():
        return _selection(case, case.baseline, "baseline", UNLABELLED)
    why = f"the deepest layer{case.budget.within}: {UNLABELLED}"
    return _selection(case, case.columns()[-1], "deepest", why)


def _within(case: Case, scored: Scored, columns: Sequence[int]) -> tuple[int, ...]:
    """Return the layers that do not differ measurably from the best one, which is not among them, nor the last."""
    best, within = best_of(scored, columns), set()
    for column in columns:
        if column not in (best, scored.baseline) and scored.is_within(column, best):
            within.add(scored.layers[column])
    if best != scored.baseline and scored.is_within(scored.baseline, best):
        within.add(scored.layers[best])
    return tuple(sorted(within - {case.last}))


def _held_out(held: Scored, chosen: int) -> Apart:
    """Return what the choice scores on samples that were held out."""
    layer = None if chosen == held.baseline else held.layers[chosen]
    return Apart(
        float(held.means[chosen]),
        _finite(held.errors[chosen]),
        *held.difference(chosen, held.baseline),
        ((layer, len(held.values)),),
        "sample",
    )


def _by_block(scored: Scored, choose: Choose) -> Apart | None:
    """Return what the choice scores where every block is judged at the layer that the others choose."""
    if scored.blocks is None:
        return None
    blocks, block_of = np.unique(scored.blocks, return_inverse=True)
    try:
        columns = np.array([choose(scored.without(block)) for block in blocks])
    except LayerscopeError:  # without some block no layer is within the loss that is allowed
        return None
    values = np.take_along_axis(scored.values, columns[block_of][:, None], 1)[:, 0]
    score, error = mean_of(values, scored.weights)
    names = (*scored.layers, None)
    counts = Counter(names[column] for column in columns.tolist())
    is_sample = scored.unit == "sample"
    return Apart(
        score,
        error if is_sample else None,
        *mean_of(values - scored.values[:, scored.baseline], scored.weights),
        tuple(counts.most_common()),
        "fold" if is_sample else "task",
    )


def _of_task(scored: Scored, choose: Choose, last: int) -> OfTask:
    """Return what one task alone would choose, or the baseline where no layer is within the loss allowed."""
    try:
        column = choose(scored)
    except LayerscopeError:
        column = scored.baseline
    layer, score = (*scored.layers, last)[column], float(scored.means[column])
    difference, error = scored.difference(column, scored.baseline)
    is_shipped = column == scored.baseline
    return OfTask(scored.title, layer, is_shipped, score, difference, _finite(error))


def _why(case: Case, scored: Scored, name: str, chosen: int, columns: Sequence[int]) -> str:
    within = case.budget.within
    if case.budget.max_loss is not None:
        columns = within_loss(scored, columns, case.budget.max_loss / scored.points)
    best = best_of(scored, columns)
    skipped = [i for i, layer in enumerate(scored.layers) if layer < case.first_layer]
    no_shallower = "no shallower layer"
    if any(one_standard_error(scored, (i, best)) == i for i in skipped):
        no_shallower = f"from layer {case.first_layer} on, no shallower layer"
    if name == MAX_LOSS:
        return _why_within_loss(scored, chosen, case.budget, no_shallower)
    if name == "best":
        return f"the best score{within}"
    if name == DEFAULT:
        return _why_clear(scored, best, chosen, within)
    if chosen == best:
        return f"the best score{within}; {no_shallower} comes within one standard error of it"
    if scored.means[chosen] >= scored.means[best]:
        return f"as good as the best, {scored.name(best)}{within}"
    error = "of the best score"
    if scored.is_paired:
        error = f"paired over {len(scored.values):,} {scored.unit}s"
    return f"the shallowest layer within one standard error ({error}) of the best, {scored.name(best)}{within}"


def _why_within_loss(scored: Scored, chosen: int, budget: Budget, no_shallower: str) -> str:
    most = budget.max_loss or 0
    within = f"loses at most {in_points(most)}{budget.within}"
    if chosen == scored.baseline:
        return f"{no_shallower} {within}; {scored.name(chosen)} loses nothing"
    difference, error = scored.difference(chosen, scored.baseline)
    largest = (SURE * error - difference) * scored.points
    if not math.isfinite(error):
        certainty = "; its error is unknown"
    elif error == 0:
        certainty = ""
    else:
        certain = "certain" if largest <= most + 1e-9 else "not certain"
        certainty = f"; {certain} at {SURE:g} standard errors"
    return f"the shallowest layer that {within}{certainty}"


def _why_clear(scored: Scored, best: int, chosen: int, within: str) -> str:
    baseline = scored.name(scored.baseline)
    if best == scored.baseline:
        return f"{baseline} has the best score"
    if chosen == scored.baseline:
        return f"no layer is measurably better than {baseline}"
    is_clear = differs(*scored.difference(best, scored.baseline))
    if is_clear is None:
        return f"the best score{within}; the error of its difference is unknown"
    return f"the best score{within}" + (f", measurably above {baseline}" if is_clear else "")


def _selection(
    case: Case,
    chosen: int,
    rule: str,
    why: str,
    apart: Apart | None = None,
    within: tuple[int, ...] = (),
    by_task: tuple[OfTask, ...] = (),
) -> Selection:
    scored, is_shipped = case.scored, chosen == case.baseline
    *rows, baseline = (case.candidate(column) for column in range(case.baseline + 1))
    candidate = (*rows, baseline)[chosen]
    if candidate.layer == case.last and (scored is None or scored.equals_baseline(chosen)):
        is_shipped = True
    facts: dict[str, Any] = {"baseline_name": SHIPPED}
    if scored is not None:
        considered = [i for i, layer in enumerate(case.layers) if layer >= case.first_layer]
        facts = {
            "best": case.layers[best_of(scored, considered)],
            "scored_on": scored.title,
            "share": scored.share,
            "basis": scored.basis,
            "lacking": scored.lacking,
            "baseline_name": scored.baseline_name,
        }
    judged = apart or candidate
    return Selection(
        layer=candidate.layer,
        depth=case.last,
        as_shipped=is_shipped,
        rule=rule,
        why=why,
        gain=0.0 if is_shipped else judged.difference,
        gain_error=0.0 if is_shipped else judged.difference_error,
        baseline=baseline,
        layers=tuple(rows),
        measured=None if case.costs is None else case.costs.measured,
        apart=apart,
        within=within,
        by_task=by_task,
        **case.about,
        **facts,
    )


def _finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
