"""Directions of metrics fitted on evaluations, a model held out at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from layerscope.core.errors import LayerscopeError
from layerscope.scores.correlation import pairs, whole
from layerscope.scores.metric_values import curves
from layerscope.scores.rules import Choice, Direction, Rule, lowest_mean_rank
from layerscope.scores.statistics import FEWEST, Floats, spearman
from layerscope.scores.summary import MIN_SHARE

if TYPE_CHECKING:
    from layerscope.scores.evaluation import Evaluation
    from layerscope.scores.metric_values import Metrics

WHAT = ("corpus", "metric", "variant", "site", "pooling")
"""What identifies a rule's metric."""
COMBINED = "mean rank"
SHARES = np.arange(1, 101) / 100
"""Shares of depth among which a fixed one is chosen."""
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
    held out together), and `choices` hold the outcome. A metric whose correlation is 0 or cannot be computed gives
    no rule; several variants of a metric give a rule each. Models whose last layer has no scores, and those with scores
    on less than `min_share` of the tasks, are left out. Raises `LayerscopeError` for fewer than two models with both
    metrics and scores.

    >>> from layerscope.scores import fit_rules, open_evaluation, open_metrics
    >>> rule, = fit_rules(open_metrics("metrics.csv"), open_evaluation("scores.csv"))
    >>> rule.name, rule.layers
    ('minimum dataset_entropy · wiki', {'small': 2, 'large': 2})
    """
    whole("first_layer", first_layer)
    cases = _cases(curves(metrics), evaluation, first_layer, min_share)
    models = list(dict.fromkeys(case.model for case in cases))
    if len(models) < 2:
        raise LayerscopeError(
            f"rules are tested on models they were not fitted on, and {(*models, 'none')[0]} is the only one with "
            "metrics and scores, those of its last layer on enough tasks among them: give two models or more"
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
    """Return the whole models with scores and metrics, metrics only at layers that have a score."""
    found: dict[int, _Case] = {}
    known = list(pairs(frame, evaluation.grids(min_share)))
    depths: dict[int, int] = {}
    for _, grid, curve in known:
        depths[id(grid)] = max(depths.get(id(grid), grid.depth), 0, *map(int, curve.index))
    for about, grid, curve in known:
        if grid.is_partial or depths[id(grid)] not in grid.complete.index:
            continue
        scores = grid.average[grid.average.index >= first_layer]
        case = found.setdefault(id(grid), _Case(grid.about["model"], grid.about["revision"], {}, scores, {}))
        metric = curve[curve.index.isin(scores.index)]
        if len(metric):
            key = tuple(about[name] for name in WHAT)
            case.metrics[key] = metric
            case.correlations[key] = _correlation(metric, scores)
    return [case for case in found.values() if case.metrics]


def fixed_layers(scores: Sequence[tuple[str, pd.Series]]) -> list[int]:
    """Return for each model the layer at the share of depth that ranks best on the others.

    `scores` are names of models, of two or more, and their scores by layer down to the last one; several of a model,
    its revisions, count once together and are held out together. A share's rank is that of its layer's score among the
    layers, as a share of their number, so that no model counts for more whose scores lie further apart. Of shares that
    tie it is the middle one.
    """
    near = [
        np.abs(by_layer.index.to_numpy()[None] - SHARES[:, None] * by_layer.index[-1]).argmin(1)
        for _, by_layer in scores
    ]
    ranks: dict[str, list[Floats]] = {}
    for (model, by_layer), places in zip(scores, near, strict=True):
        ranks.setdefault(model, []).append((by_layer.rank().to_numpy()[places] - 0.5) / len(by_layer))
    means = {model: np.mean(own, axis=0) for model, own in ranks.items()}
    found = []
    for (model, by_layer), places in zip(scores, near, strict=True):
        others = np.mean([mean for name, mean in means.items() if name != model], axis=0)
        ties = np.flatnonzero(others >= others.max() - 1e-12)
        found.append(int(by_layer.index[places[ties[len(ties) // 2]]]))
    return found


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
    return Rule(name, direction=direction, correlation=correlation, choices=_compared(choices, cases), **about)


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
    return Rule(name, COMBINED, None, math.nan, _compared(choices, cases), corpus=parts[0].corpus, parts=parts)


def _compared(choices: Sequence[Choice], cases: Sequence[_Case]) -> tuple[Choice, ...]:
    """Return choices with what a fixed share of depth, chosen on the other models of these very trials, scores."""
    if len({choice.model for choice in choices}) < 2:
        return tuple(choices)
    scores = {(case.model, case.revision): case.scores for case in cases}
    tried = [scores[choice.model, choice.revision] for choice in choices]
    fixed = fixed_layers([(choice.model, by_layer) for choice, by_layer in zip(choices, tried, strict=True)])
    return tuple(
        replace(choice, fixed=float(by_layer[layer]))
        for choice, by_layer, layer in zip(choices, tried, fixed, strict=True)
    )


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
