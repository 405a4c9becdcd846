"""Rules that choose a layer without labels: directions fitted on other models, gains measured on the one held out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from layerscope.errors import LayerscopeError
from layerscope.errors import choices as choices_of
from layerscope.evaluation.correlation import pairs
from layerscope.evaluation.metric_values import curves
from layerscope.evaluation.statistics import FEWEST, spearman
from layerscope.evaluation.summary import MIN_SHARE

if TYPE_CHECKING:
    from layerscope.evaluation.evaluation import Evaluation
    from layerscope.evaluation.metric_values import Metrics

Direction = Literal["minimum", "maximum"]
WHAT = ("corpus", "metric", "variant", "site", "pooling")
COMBINED = "mean rank"
Key = tuple[Any, ...]
"""The values of `WHAT` of one metric."""


@dataclass(frozen=True)
class Choice:
    """The layer a rule chose for a model that took no part in fitting it, and what that layer scores.

    `direction` was fitted on the other models; `last`, `best` and `mean` are scores of the layers that could be chosen:
    of the last, of the best, and of one drawn at random.
    """

    model: str
    revision: str
    direction: Direction | None
    layer: int
    score: float
    last: float
    best: float
    mean: float

    @property
    def gain(self) -> float:
        """Score of the chosen layer less that of the last one."""
        return self.score - self.last

    @property
    def regret(self) -> float:
        """Score of the best layer less that of the chosen one."""
        return self.best - self.score

    @property
    def chance_gain(self) -> float:
        """Gain over the last layer to be expected of a layer drawn at random."""
        return self.mean - self.last


@dataclass(frozen=True)
class Rule:
    """Take the layer at a metric's minimum or maximum; with `parts`, that of the lowest mean rank over these rules.

    `direction` and `correlation` (mean Spearman with the mean score, over models) are fitted on all models; `choices`
    were made for each model with the direction fitted on the **other** models, and are the evidence.
    """

    name: str
    metric: str
    direction: Direction | None
    correlation: float
    choices: tuple[Choice, ...]
    variant: str | None = None
    corpus: str | None = None
    site: str | None = None
    pooling: str | None = None
    parts: tuple[Rule, ...] = ()

    @property
    def gains(self) -> dict[str, float]:
        """Gain over the last layer by held-out model, in the scores' own units."""
        return _by_model(self.choices, "gain")

    @property
    def mean_gain(self) -> float:
        """Mean of the gains, NaN where the rule chose for no model."""
        return float(np.mean(list(self.gains.values()))) if self.choices else math.nan

    @property
    def chance_gain(self) -> float:
        """Mean gain of a layer drawn at random: a rule that gains no more has found nothing."""
        return float(np.mean([choice.chance_gain for choice in self.choices])) if self.choices else math.nan

    @property
    def agreeing(self) -> int:
        """Number of choices whose direction, fitted on the other models, is the one fitted on all."""
        return sum(choice.direction == self.direction for choice in self.choices)

    @property
    def failures(self) -> int:
        """Number of choices that score less than the last layer."""
        return sum(choice.gain < 0 for choice in self.choices)

    @property
    def worst_gain(self) -> float:
        """The lowest gain: how wrongly the rule failed where it is negative; NaN where it chose for no model."""
        return min((choice.gain for choice in self.choices), default=math.nan)

    def choose(self, values: pd.Series | pd.DataFrame, first_layer: int = 1) -> int:
        """Return the layer this rule takes; of layers that tie, the shallowest.

        `values` is the metric by layer (a series whose index is the layer), or a frame layer × metric: its column of
        this metric, or, for a rule with parts, all their columns. Layers below `first_layer` and without a value are no
        candidates. Raises `LayerscopeError` where a metric is not there or no candidate is left.
        """
        if self.parts:
            return self._by_rank(values, first_layer)
        series = _column(values, self.metric)
        known = series[series.index >= first_layer].dropna().sort_index()
        if known.empty:
            raise LayerscopeError(f"{self.metric} has no value at any layer from {first_layer} on: measure it first")
        return int(known.idxmin() if self.direction == "minimum" else known.idxmax())

    def _by_rank(self, values: pd.Series | pd.DataFrame, first_layer: int) -> int:
        columns = [_column(values, part.metric) for part in self.parts]
        found = lowest_mean_rank(columns, [part.direction for part in self.parts], first_layer)
        if found is None:
            raise LayerscopeError(f"no layer from {first_layer} on has a value of every metric of {self.name}")
        return found


def lowest_mean_rank(
    columns: Sequence[pd.Series], directions: Sequence[Direction | None], first_layer: int = 1
) -> int | None:
    """Return the layer whose ranks among the layers, averaged over metrics, are lowest; of a tie the shallowest.

    Each of `columns` is a metric by layer, ranked from its minimum or maximum on, ties at their mean rank. A metric
    without any value takes no part, nor does a layer where one of the rest has none; None where no layer is left.
    """
    signed = [
        -column if direction == "maximum" else column for column, direction in zip(columns, directions, strict=True)
    ]
    known = pd.DataFrame(dict(enumerate(signed))).sort_index()
    known = known[known.index >= first_layer].dropna(axis=1, how="all").dropna()
    return None if known.empty else int(known.rank().mean(axis=1).idxmin())


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


def rules_table(rules: Iterable[Rule]) -> pd.DataFrame:
    """Return a row per rule: what it is, mean gain, how often it failed and how wrongly, and the gain on each model."""
    rows = [
        {
            "rule": rule.name, "corpus": rule.corpus, "metric": rule.metric, "variant": rule.variant,
            "direction": rule.direction, "correlation": rule.correlation, "mean_gain": rule.mean_gain,
            "chance_gain": rule.chance_gain, "agreeing": rule.agreeing, "models": len(rule.choices), "failed": rule.failures, "worst_gain": rule.worst_gain,
            **{f"gain {model}": gain for model, gain in rule.gains.items()},
            **{f"layer {model}": layer for model, layer in _by_model(rule.choices, "layer").items()},
        }
        for rule in rules
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    return frame.astype({name: "Int64" for name in frame if str(name).startswith("layer ")})


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
    name = _name([direction, "of", about["metric"]], about["corpus"])
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
    name = _name([COMBINED, "of", str(len(parts)), "metrics"], parts[0].corpus)
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
    return " ".join([*words, f"on {corpus}"] if corpus else words)


def _column(values: pd.Series | pd.DataFrame, metric: str) -> pd.Series:
    if isinstance(values, pd.Series):
        return values
    if metric not in values:
        known = [str(name) for name in values.columns]
        raise LayerscopeError(f"metric {metric!r} is not among these by layer{choices_of(metric, known, 'there are')}")
    return values[metric]


def _by_model(choices: Sequence[Choice], field: str) -> dict[str, Any]:
    """Return one field of the choices by model; by model and revision where a model has several."""
    models = [choice.model for choice in choices]
    names = [f"{c.model} {c.revision}".strip() if models.count(c.model) > 1 else c.model for c in choices]
    return {name: getattr(choice, field) for name, choice in zip(names, choices, strict=True)}
