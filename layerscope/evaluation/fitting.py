"""Directions of metrics fitted on evaluations, a model held out at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from layerscope.errors import LayerscopeError
from layerscope.evaluation.correlation import pairs, whole
from layerscope.evaluation.metric_values import curves
from layerscope.evaluation.rules import Choice, Direction, Rule, lowest_mean_rank
from layerscope.evaluation.statistics import FEWEST, spearman
from layerscope.evaluation.summary import MIN_SHARE

if TYPE_CHECKING:
    from layerscope.evaluation.evaluation import Evaluation
    from layerscope.evaluation.metric_values import Metrics

WHAT = ("corpus", "metric", "variant", "site", "pooling")
"""What a rule's metric is told by."""
COMBINED = "mean rank"
Key = tuple[Any, ...]
"""The values of `WHAT` of one metric."""


@dataclass(frozen=True)
class _Case:
    """One model: its metrics by layer, mean scores by layer, and each metric's Spearman with these."""

    model: str
    revision: str
    metrics: dict[Key, pd.Series]
    scores: pd.Series
    correlations: dict[Key, float]


def fit_rules(
    metrics: Metrics,
    evaluation: Evaluation,
    *,
    first_layer: int = 1,
    min_share: float = MIN_SHARE,
) -> list[Rule]:
    """Return a rule for each metric and a combined one for each corpus of two metrics or more, best mean gain first.

    A direction is the sign of the mean Spearman correlation with the mean score over models: a negative one takes the
    minimum. Every rule is tried on each model with directions fitted on the other models only (all revisions of one are
    held out together), and `choices` tell what that gave. A metric whose correlation is 0 or cannot be computed gives
    no rule; several variants of a metric give a rule each. Raises `LayerscopeError` for fewer than two models with both
    metrics and scores.
    """
    whole("first_layer", first_layer)
    cases = _cases(curves(metrics), evaluation, first_layer, min_share)
    models = list(dict.fromkeys(case.model for case in cases))
    if len(models) < 2:
        raise LayerscopeError(
            f"rules are tested on models they were not fitted on, and {models[0]} is the only one with metrics and "
            "scores: give two models or more"
        )
    keys = dict.fromkeys(key for case in cases for key in case.metrics)
    single = [rule for key in keys if (rule := _rule(key, cases, first_layer)) is not None]
    combined = []
    for corpus in dict.fromkeys(rule.corpus for rule in single):
        parts = tuple(rule for rule in single if rule.corpus == corpus)
        if len(parts) > 1:
            combined.append(_combined(parts, cases, first_layer))
    return sorted(single + combined, key=lambda rule: -rule.mean_gain if rule.choices else math.inf)


def _cases(frame: pd.DataFrame, evaluation: Evaluation, first_layer: int, min_share: float) -> list[_Case]:
    """Return the models with scores and metrics, metrics only at layers that have a score."""
    found: dict[int, _Case] = {}
    for about, grid, curve in pairs(frame, evaluation.grids(min_share)):
        if grid.complete.empty:
            continue
        scores = grid.average[grid.average.index >= first_layer]
        case = found.setdefault(id(grid), _Case(grid.about["model"], grid.about["revision"], {}, scores, {}))
        metric = curve[curve.index.isin(scores.index)]
        if len(metric):
            key = tuple(about[name] for name in WHAT)
            case.metrics[key] = metric
            case.correlations[key] = _correlation(metric, scores)
    return [case for case in found.values() if case.metrics]


def _correlation(metric: pd.Series, scores: pd.Series) -> float:
    if len(metric) < FEWEST:
        return math.nan
    return float(spearman(metric.to_numpy(), scores[metric.index].to_numpy()))


def _fitted(key: Key, cases: Iterable[_Case]) -> tuple[Direction | None, float]:
    """Return a metric's direction and mean correlation; each model counts once, whatever its revisions."""
    by_model: dict[str, list[float]] = {}
    for case in cases:
        value = case.correlations.get(key, math.nan)
        if math.isfinite(value):
            by_model.setdefault(case.model, []).append(float(value))
    mean = float(np.mean([np.mean(values) for values in by_model.values()])) if by_model else math.nan
    if not math.isfinite(mean) or abs(mean) < 1e-12:
        return None, mean
    return ("minimum" if mean < 0 else "maximum"), mean


def _rule(key: Key, cases: list[_Case], first_layer: int) -> Rule | None:
    direction, correlation = _fitted(key, cases)
    if direction is None:
        return None
    about = dict(zip(WHAT, key, strict=True))
    choices = []
    for case in cases:
        fitted, _ = _fitted(key, _others(case, cases))
        if fitted is not None and key in case.metrics:
            rule = Rule(about["metric"], about["metric"], fitted, math.nan, ())
            choices.append(_choice(case, fitted, rule.choose(case.metrics[key], first_layer)))
    name = _name([direction, about["metric"]], about["corpus"])
    return Rule(name, direction=direction, correlation=correlation, choices=tuple(choices), **about)


def _combined(parts: tuple[Rule, ...], cases: list[_Case], first_layer: int) -> Rule:
    """Return the rule of the lowest mean rank over metrics, each in the direction fitted on the other models."""
    keys = [tuple(getattr(part, name) for name in WHAT) for part in parts]
    choices = []
    for case in cases:
        others = _others(case, cases)
        fitted = {key: _fitted(key, others)[0] for key in keys if key in case.metrics}
        fitted = {key: direction for key, direction in fitted.items() if direction is not None}
        layer = lowest_mean_rank([case.metrics[key] for key in fitted], list(fitted.values()), first_layer)
        if layer is not None:
            choices.append(_choice(case, None, layer))
    name = _name([COMBINED, "of", str(len(parts))], parts[0].corpus)
    return Rule(name, COMBINED, None, math.nan, tuple(choices), corpus=parts[0].corpus, parts=parts)


def _others(case: _Case, cases: list[_Case]) -> list[_Case]:
    return [other for other in cases if other.model != case.model]


def _choice(case: _Case, direction: Direction | None, layer: int) -> Choice:
    scores = case.scores
    return Choice(
        case.model, case.revision, direction, layer, score=float(scores[layer]), last=float(scores.iloc[-1]),
        best=float(scores.max()), mean=float(scores.mean()),
    )  # fmt: skip


def _name(words: list[str], corpus: str | None) -> str:
    return " ".join([*words, f"· {corpus}"] if corpus else words)
