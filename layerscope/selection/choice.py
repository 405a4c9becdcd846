"""From scores and bounds to the choice.

The columns within the bounds are the candidates, and a rule takes one of them. What the choice will
gain is judged on data that had no part in it: each block of units (a fold, or a task) is judged at
the column that all other blocks choose. If folds 0 to 3 choose layer 4 and fold 4 layer 3, then the
gain is that of layer 4 on the samples of four folds, and of layer 3 on those of the fifth.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from layerscope.core import LayerscopeError
from layerscope.scores.shifts import mean_of
from layerscope.selection.scored import (
    SHIPPED,
    Scored,
    best_if_clear,
    best_of,
    in_points,
    within_loss,
)
from layerscope.selection.selection import Apart, Candidate, Selection
from layerscope.truncation.budget import Budget
from layerscope.truncation.costs import Costs

DEFAULT = "best-if-clear"
MAX_LOSS = "max-loss"
UNLABELLED = "without labels or scores of tasks nothing tells which layer serves best"
SHARE = 0.8
"""Of the depth: the layer of a language model that nobody trained to embed, where nothing else tells."""
GAINS = {"Mamba-370M": 13.3, "Pythia-410M": 4.8, "LLM2Vec-8B": 1.5}
"""By how many points that layer scores above the last one: means over the tasks of MTEB, by the released scores."""
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
    is_language_model: bool = False

    @property
    def last(self) -> int:
        """L where it is known, else the last layer there is."""
        return self.depth or self.layers[-1]

    @property
    def candidates(self) -> tuple[int, ...]:
        """The layers that may be chosen: all but layer 0, what the first block reads."""
        return tuple(layer for layer in self.layers if layer > 0)

    @property
    def baseline(self) -> int:
        """Column of the model as shipped, behind the layers."""
        return len(self.layers)

    def columns(self) -> list[int]:
        """Return the columns within the bounds on cost, the baseline last; raises where no layer is."""
        candidates = self.candidates
        if self.costs is not None:
            candidates = self.budget.layers(candidates, self.costs.layers)
        columns = [*map(self.layers.index, candidates)]
        if self.costs is None or self.budget.allows(self.costs.full):
            columns.append(self.baseline)
        return columns

    def candidate(self, column: int) -> Candidate:
        """Return what is known of one layer, or in the last column of the model as shipped."""
        layer = (*self.layers, self.last)[column]
        facts: dict[str, Any] = {}
        if self.costs is not None and column == self.baseline:
            facts |= vars(self.costs.full)
        elif self.costs is not None and layer in self.costs.layers:
            facts |= vars(self.costs.layers[layer])
        if self.scored is not None:
            difference, error = self.scored.difference(column, self.scored.baseline)
            facts["score"] = float(self.scored.means[column])
            facts["stderr"] = _finite(self.scored.errors[column])
            facts["difference"] = difference
            facts["difference_error"] = _finite(error)
        return Candidate(layer, **facts)


def choose_layer(case: Case, rule: str | None) -> Selection:
    """Return the choice by scores where there are any: the shallowest within a loss allowed, else the rule's.

    Where too little was judged it is the model as shipped.
    """
    scored = case.scored
    most = case.budget.max_loss
    if scored is None:
        return _without_scores(case)
    if scored.lacking:
        return _selection(case, scored.baseline, "none", scored.lacking)
    name = rule or DEFAULT
    if rule is None and most is not None:
        name = MAX_LOSS
    columns = case.columns()

    def choose(scores: Scored) -> int:
        allowed = within_loss(scores, columns, most)
        if name == MAX_LOSS:
            return allowed[0]
        if name == DEFAULT:
            return best_if_clear(scores, allowed)
        return best_of(scores, allowed)

    chosen = choose(scored)
    why = _why(case, scored, name, chosen, columns)
    selection = _selection(case, chosen, name, why)
    if name == DEFAULT:
        selection = replace(selection, within=_within(case, scored, columns))
    if chosen == scored.baseline:
        return selection
    return _with_expected_gain(selection, _by_block(scored, choose))


def _with_expected_gain(selection: Selection, apart: Apart | None) -> Selection:
    """Return a choice whose gain is that of data that had no part in choosing, where there are any."""
    if apart is None or selection.as_shipped:
        return replace(selection, apart=apart)
    error = apart.difference_error
    gain = apart.difference
    if apart.unit == "fold":
        gain = without_luck(gain, error)
    return replace(selection, apart=apart, gain=gain, gain_error=error)


def without_luck(gain: float, error: float) -> float:
    """Return what to expect of a gain: less than was seen, as a layer is chosen more often where luck helps it.

    It is the positive-part estimate of James and Stein 1961, d (1 − e² / d²) of a gain d with the
    error e; a loss stays as it is.

    >>> without_luck(4.0, 2.0), without_luck(1.0, 2.0), without_luck(-1.0, 2.0)
    (3.0, 0.0, -1.0)
    """
    if gain <= 0:
        return gain
    return gain * max(0.0, 1 - (error / gain) ** 2)


def _without_scores(case: Case) -> Selection:
    """Return the model as shipped, or where that is not within the bounds the deepest layer that is.

    Of a language model it is the layer nearest to `SHARE` of the depth.
    """
    wanted = SHARE * case.last
    layer = min(case.candidates, key=lambda layer: abs(layer - wanted))
    nearest = case.layers.index(layer)
    columns = case.columns()
    if case.is_language_model and nearest in columns:
        points = [f"{points} ({model})" for model, points in GAINS.items()]
        gains = ", ".join(points)
        why = (
            f"{100 * SHARE:.0f} % of the depth{case.budget.within}: on MTEB that layer beats the last one by {gains} "
            "points; three families are few, so judge it by labels of yours"
        )
        return _selection(case, nearest, "share-of-depth", why)
    if case.baseline in columns:
        return _selection(case, case.baseline, "baseline", UNLABELLED)
    why = f"the deepest layer{case.budget.within}: {UNLABELLED}"
    return _selection(case, columns[-1], "deepest", why)


def _within(case: Case, scored: Scored, columns: Sequence[int]) -> tuple[int, ...]:
    """Return the layers that do not differ measurably from the best one, which is not among them, nor the last."""
    best = best_of(scored, columns)
    within = set()
    for column in columns:
        if column not in (best, scored.baseline) and scored.is_within(column, best):
            within.add(scored.layers[column])
    if best != scored.baseline and scored.is_within(scored.baseline, best):
        within.add(scored.layers[best])
    return tuple(sorted(within - {case.last}))


def _by_block(scored: Scored, choose: Choose) -> Apart | None:
    """Return what the choice scores where every block is judged at the layer that the others choose."""
    if scored.blocks is None:
        return None
    values = scored.values.copy()
    names = np.unique(scored.blocks)
    try:
        for block in names:
            units = scored.blocks == block
            others = replace(scored, values=scored.values[~units], blocks=None)
            column = choose(others)
            values[units, -1] = scored.values[units, column]
    # without some block no layer is within the loss that is allowed
    except LayerscopeError:
        return None
    judged = values[:, -1]
    score, error = mean_of(judged)
    gain, gain_error = mean_of(judged - scored.values[:, -1])
    if scored.unit == "task":
        return Apart(score, None, gain, gain_error, len(names), "task")
    return Apart(score, error, gain, gain_error, len(names), "fold")


def _why(
    case: Case, scored: Scored, name: str, chosen: int, columns: Sequence[int]
) -> str:
    """Return why a column was chosen, in a sentence."""
    within = case.budget.within
    baseline = scored.baseline_name
    if name == MAX_LOSS:
        loses = f"loses at most {in_points(case.budget.max_loss or 0)}{within}"
        if chosen == scored.baseline:
            return f"no shallower layer {loses}; {baseline} loses nothing"
        return f"the shallowest layer that {loses}"
    if name == DEFAULT and chosen == scored.baseline:
        return f"no layer is measurably better than {baseline}"
    if name != DEFAULT or scored.baseline not in columns:
        return f"the best score{within}"
    _, error = scored.difference(chosen, scored.baseline)
    if math.isfinite(error):
        return f"the best score{within}, measurably above {baseline}"
    return f"the best score{within}; the error of its difference is unknown"


def _selection(case: Case, chosen: int, rule: str, why: str) -> Selection:
    """Return the choice of a column, with all that is known of it and of the others."""
    scored = case.scored
    *layers, baseline = map(case.candidate, range(case.baseline + 1))
    candidate = (*layers, baseline)[chosen]
    is_shipped = candidate.layer == case.last
    facts: dict[str, Any] = {"baseline_name": SHIPPED}
    if scored is not None:
        is_shipped = is_shipped and scored.equals_baseline(chosen)
        columns = [*map(case.layers.index, case.candidates)]
        facts = {
            "best": case.layers[best_of(scored, columns)],
            "scored_on": scored.title,
            "share": scored.share,
            "basis": scored.basis,
            "lacking": scored.lacking,
            "baseline_name": scored.baseline_name,
        }
    if case.costs is not None:
        facts["measured"] = case.costs.measured
    gain = candidate.difference
    error = candidate.difference_error
    if is_shipped:
        gain = 0.0
        error = 0.0
    return Selection(
        layer=candidate.layer,
        depth=case.last,
        as_shipped=is_shipped,
        rule=rule,
        why=why,
        gain=gain,
        gain_error=error,
        baseline=baseline,
        layers=tuple(layers),
        **case.about,
        **facts,
    )


def _finite(value: Any) -> float | None:
    """Return a number, None where it is NaN or infinite."""
    if math.isfinite(value):
        return float(value)
    return None
