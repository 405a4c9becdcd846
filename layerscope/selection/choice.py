"""From scores, rules and bounds to the choice."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from layerscope.core.errors import LayerscopeError
from layerscope.selection.budget import Budget
from layerscope.selection.by_score import BY_SCORE, SURE, Scored, best_of, mean_of, within_loss
from layerscope.selection.selection import SHIPPED, Apart, Candidate, OfTask, Refused, Selection

if TYPE_CHECKING:
    from layerscope.selection.label_free import Followed
    from layerscope.truncation.costs import Cost, Costs

DEFAULT = "one-standard-error"
NONE_TRUSTED = "no label-free rule is trusted here"


@dataclass(frozen=True)
class Case:
    """One model to choose a layer of: its scores and costs, as far as they are known, and the bounds."""

    model: str
    site: str | None
    pooling: str | None
    budget: Budget
    first_layer: int
    scored: Scored | None
    costs: Costs | None
    depth: int = 0
    sites: tuple[str, ...] = ()
    baseline: str = SHIPPED
    of_tasks: tuple[Scored, ...] = ()
    pooled: bool = False

    @property
    def layers(self) -> tuple[int, ...]:
        """Every layer there is."""
        return self.scored.layers if self.scored is not None else tuple(range(self.depth + 1))

    @property
    def last(self) -> int:
        """L where it is known, else the last layer there is."""
        return self.depth or self.layers[-1]

    def cost(self, layer: int) -> Cost | None:
        """Return what a depth costs, None where that is not known."""
        return None if self.costs is None else self.costs.layers.get(layer)

    def candidates(self) -> tuple[int, ...]:
        """Return the layers that may be chosen; raises where none is left."""
        there = [layer for layer in self.layers if layer >= self.first_layer]
        if not there:
            raise LayerscopeError(f"first layer {self.first_layer} is beyond the last one, {self.layers[-1]}")
        return self.budget.layers(there, {} if self.costs is None else self.costs.layers)

    def fits_as_shipped(self) -> bool:
        """Return whether the model as shipped is within the bounds."""
        return self.budget.allows(None if self.costs is None else self.costs.full)


def by_scores(case: Case, rule: str | None, source: str, notes: Sequence[str] = ()) -> Selection:
    """Return the choice by scores: the shallowest within a loss where one is allowed, else the rule's.

    Where too little was judged it is the model as shipped.
    """
    scored = case.scored
    assert scored is not None
    baseline = len(scored.layers)
    if scored.lacking:
        return _selection(case, chosen=baseline, rule="none", why=scored.lacking, source=source, notes=tuple(notes))
    columns = [scored.layers.index(layer) for layer in case.candidates()]
    if case.fits_as_shipped():
        columns.append(baseline)
    name = rule or (DEFAULT if case.budget.max_loss is None else "max-loss")
    choose = partial(_column, case.budget, name, columns)
    chosen = choose(scored)
    allowed = columns if case.budget.max_loss is None else _within(case.budget, scored, columns)
    return _selection(
        case, chosen=chosen, rule=name, why=_why(case, scored, name, chosen, allowed), source=source,
        notes=tuple(notes), apart=_held(scored, chosen) or (None if chosen == baseline else _apart(scored, choose)),
        by_task=tuple(_of_task(task, choose, case) for task in case.of_tasks) if len(case.of_tasks) > 1 else (),
    )  # fmt: skip


def _column(budget: Budget, name: str, columns: Sequence[int], scored: Scored) -> int:
    """Return the column that these scores choose."""
    kept = columns if budget.max_loss is None else _within(budget, scored, columns)
    return kept[0] if name == "max-loss" else BY_SCORE[name](scored, kept)


def _within(budget: Budget, scored: Scored, columns: Sequence[int]) -> list[int]:
    assert budget.max_loss is not None
    return within_loss(scored, columns, budget.max_loss / (100 if scored.share else 1))


def _held(scored: Scored, chosen: int) -> Apart | None:
    """Return what the choice scores on samples that had no part in it, where some were held out."""
    held, baseline = scored.held, len(scored.layers)
    if held is None:
        return None
    difference, error = held.difference(chosen, baseline)
    layer = None if chosen == baseline else scored.layers[chosen]
    return Apart(
        float(held.means[chosen]),
        _known(held.errors[chosen]),
        difference,
        error,
        ((layer, len(held.values)),),
        "sample",
    )


def _apart(scored: Scored, choose: Callable[[Scored], int]) -> Apart | None:
    """Return what the choice scores where every block is judged at the layer that the others choose."""
    if scored.blocks is None:
        return None
    baseline, chosen = len(scored.layers), np.empty(len(scored.values), dtype=np.int64)
    for block in np.unique(scored.blocks):
        try:
            chosen[scored.blocks == block] = choose(scored.some(scored.blocks != block))
        except LayerscopeError:  # without this block no layer is within the loss that is allowed
            return None
    values = np.take_along_axis(scored.values, chosen[:, None], 1)[:, 0]
    score, error = mean_of(values, scored.weights)
    difference, difference_error = mean_of(values - scored.values[:, baseline], scored.weights)
    firsts = chosen[np.unique(scored.blocks, return_index=True)[1]]
    known = Counter(None if column == baseline else scored.layers[column] for column in firsts.tolist())
    is_sample = scored.unit == "sample"
    return Apart(
        score, error if is_sample else None, difference, difference_error, tuple(known.most_common()),
        "fold" if is_sample else "task",
    )  # fmt: skip


def _of_task(scored: Scored, choose: Callable[[Scored], int], case: Case) -> OfTask:
    """Return what one task alone would choose, or the highest score where no layer is within the loss allowed."""
    baseline = len(scored.layers)
    try:
        column = choose(scored)
    except LayerscopeError:
        column = baseline
    difference, error = scored.difference(column, baseline)
    layer = case.last if column == baseline else scored.layers[column]
    return OfTask(scored.told, layer, column == baseline, float(scored.means[column]), difference, _known(error))


def by_rule(
    case: Case,
    followed: Followed | None,
    refused: Sequence[Refused],
    source: str,
    notes: Sequence[str] = (),
    forced: bool = False,
) -> Selection:
    """Return the choice of a rule without labels, or where none is trusted the model as shipped."""
    layers = case.layers
    more: dict[str, Any] = {"source": source, "refused": tuple(refused), "forced": forced}
    if followed is None:
        if case.fits_as_shipped():
            why = NONE_TRUSTED
            return _selection(case, chosen=len(layers), rule="baseline", why=why, notes=tuple(notes), **more)
        deepest = case.candidates()[-1]
        why = f"{NONE_TRUSTED}: the deepest layer {case.budget.told}"
        return _selection(case, chosen=layers.index(deepest), rule="deepest", why=why, notes=tuple(notes), **more)
    rule = followed.rule
    end = "the lowest mean rank over its metrics" if rule.parts else f"its {rule.direction} of {rule.metric}"
    if rule.metric == "half_text_reciprocal_rank":
        end = "where the halves of a text find each other best, if that is clear, else the deepest layer"
    why = f"{end}{_bounded(case)}"
    return _selection(
        case, chosen=layers.index(followed.layer), rule=rule.name, why=why, evidence=rule,
        values=followed.values, notes=(*followed.notes, *notes), **more,
    )  # fmt: skip


def _why(case: Case, scored: Scored, name: str, chosen: int, columns: Sequence[int]) -> str:
    best = best_of(scored, columns)
    at = case.baseline if best == len(scored.layers) else f"layer {scored.layers[best]}"
    within = _bounded(case)
    if name == "max-loss":
        return (
            f"the shallowest layer that loses at most {case.budget.max_loss:g} points{within}{_certain(case, chosen)}"
        )
    if name == "best":
        return f"the best score{within}"
    if chosen == best:
        return f"the best score{within}; no shallower layer comes within one standard error of it"
    if scored.means[chosen] >= scored.means[best]:
        return f"as good as the best, {at}{within}"
    of = f"paired over {len(scored.values):,} {scored.unit}s" if len(scored.values) > 1 else "of the best score"
    return f"the shallowest layer within one standard error ({of}) of the best, {at}{within}"


def _bounded(case: Case) -> str:
    return f" {case.budget.told}" if case.budget.told else ""


def _certain(case: Case, chosen: int) -> str:
    """Return whether the loss is sure to stay below its bound, where an error is known."""
    scored, most = case.scored, case.budget.max_loss
    assert scored is not None and most is not None
    difference, error = scored.difference(chosen, len(scored.layers))
    if not math.isfinite(error):
        return "; how sure that is, is not known"
    scale = 100 if scored.share else 1
    sure = (-difference + SURE * error) * scale <= most + 1e-9
    return "" if error == 0 else f"; {'certain' if sure else 'not certain'} at {SURE:g} standard errors"


def _selection(
    case: Case, *, chosen: int, rule: str, why: str, values: pd.Series | None = None, **more: Any
) -> Selection:
    layers, scored = case.layers, case.scored
    baseline = len(layers)
    shipped = chosen == baseline or (
        layers[chosen] == case.last and (scored is None or _equal(scored, chosen, baseline))
    )
    rows = tuple(_candidate(case, column, values) for column in range(baseline))
    shown = _candidate(case, baseline, None)
    found = shown if chosen == baseline else rows[chosen]
    known, apart = None, more.get("apart")
    if scored is not None:
        known = layers[best_of(scored, [i for i, layer in enumerate(layers) if layer >= case.first_layer])]
    return Selection(
        model=case.model, layer=case.last if chosen == baseline else layers[chosen], depth=case.last,
        as_shipped=shipped, site=case.site, sites=case.sites, pooling=case.pooling, rule=rule, why=why,
        gain=0.0 if shipped else found.difference if apart is None else apart.difference,
        gain_error=0.0 if shipped else found.difference_error if apart is None else apart.difference_error,
        baseline=shown, baseline_name=case.baseline, layers=rows, best=known,
        scored_on=None if scored is None else scored.told, share=scored is not None and scored.share,
        measured=None if case.costs is None else case.costs.measured, pooled=case.pooled,
        basis="" if scored is None else scored.basis, lacking="" if scored is None else scored.lacking, **more,
    )  # fmt: skip


def _candidate(case: Case, column: int, values: pd.Series | None) -> Candidate:
    """Return what is known of one layer, or in the last column of the model as shipped."""
    scored, layers = case.scored, case.layers
    is_baseline = column == len(layers)
    layer = case.last if is_baseline else layers[column]
    cost = (case.costs.full if case.costs is not None else None) if is_baseline else case.cost(layer)
    told: dict[str, Any] = {} if cost is None else vars(cost)
    if values is not None and layer in values.index:
        told = told | {"value": _known(values[layer])}
    if scored is None:
        return Candidate(layer, **told)
    difference, error = scored.difference(column, len(layers))
    return Candidate(
        layer, score=float(scored.means[column]), stderr=_known(scored.errors[column]), difference=difference,
        difference_error=_known(error), **told,
    )  # fmt: skip


def _equal(scored: Scored, one: int, two: int) -> bool:
    return bool(np.allclose(scored.values[:, one], scored.values[:, two], rtol=0, atol=1e-12))


def _known(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
