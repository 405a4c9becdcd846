"""Directions of metrics fitted on evaluations, a model held out at a time."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.core.errors import LayerscopeError
from layerscope.core.option_kinds import Whole
from layerscope.core.options import checked
from layerscope.scores.correlation import pairs
from layerscope.scores.grids import MIN_SHARE
from layerscope.scores.metric_values import curves
from layerscope.scores.rules import DEPTH, FIXED_SHARE, Choice, Direction, Rule, by_model, lowest_mean_rank
from layerscope.scores.statistics import FEWEST, Floats, spearman

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
class Case:
    """One model: its metrics by layer, mean scores by layer, and each metric's Spearman with these."""

    model: str
    revision: str
    metrics: dict[Key, pd.Series]
    scores: pd.Series
    correlations: dict[Key, float]


def fit_rules(
    metrics: "Metrics",
    evaluation: "Evaluation",
    *,
    first_layer: Annotated[int, Whole(0)] = 1,
    min_share: float = MIN_SHARE,
) -> list[Rule]:
    """Return the fixed share of depth, a rule for each metric and a combined one for each corpus of several.

    They are sorted by mean gain. The share is the one that ranks best, `fixed-share`, for every metric to beat.

    A direction is the sign of the mean Spearman correlation with the mean score over models: a negative one takes the
    minimum. Every rule is tried on each model with directions fitted on the other models only (all revisions of one are
    held out together), and `choices` hold the outcome. A metric whose correlation is 0 or cannot be computed gives
    no rule; several variants of a metric give a rule each. Models whose last layer has no scores, and those with scores
    on less than `min_share` of the tasks, are left out. Raises `LayerscopeError` for fewer than two models with both
    metrics and scores.

    >>> from layerscope.scores import fit_rules, open_evaluation, open_metrics
    >>> for rule in fit_rules(open_metrics("metrics.csv"), open_evaluation("scores.csv")):
    ...     print(rule.name, rule.layers)
    minimum dataset_entropy · wiki {'small': 2, 'large': 2}
    fixed-share {'small': 2, 'large': 2}
    """
    checked(fit_rules, locals())
    cases = cases_of(curves(metrics), evaluation, first_layer, min_share)
    models = list(dict.fromkeys(case.model for case in cases))
    if len(models) < 2:
        raise LayerscopeError(
            f"rules are tested on models they were not fitted on, and {(*models, 'none')[0]} is the only one with "
            f"metrics and scores, its last layer on enough tasks: give two models or more"
        )
    return rules_of(cases, first_layer)


def rules_of(cases: Sequence[Case], first_layer: int = 1) -> list[Rule]:
    """Return the rules that two models or more give, each tried on every model with what the others say."""
    keys = dict.fromkeys(key for case in cases for key in case.metrics)
    single, combined = [], [_fixed_share(cases)]
    for key in keys:
        direction, correlation = _fitted(key, cases)
        if direction is not None:
            about, choices = dict(zip(WHAT, key, strict=True)), _tried([key], cases, first_layer)
            name = _name(f"{direction} {about['metric']}", about["corpus"])
            single.append(Rule(name, direction=direction, correlation=correlation, choices=choices, **about))
    for corpus in dict.fromkeys(rule.corpus for rule in single):
        parts = tuple(rule for rule in single if rule.corpus == corpus)
        if len(parts) > 1:
            choices = _tried([tuple(getattr(part, name) for name in WHAT) for part in parts], cases, first_layer)
            name = _name(f"{COMBINED} of {len(parts)}", corpus)
            combined.append(Rule(name, COMBINED, None, math.nan, choices, corpus=corpus, parts=parts))
    return sorted(single + combined, key=lambda rule: -rule.mean_gain if rule.choices else math.inf)


def cases_of(frame: pd.DataFrame, evaluation: "Evaluation", first_layer: int, min_share: float) -> list[Case]:
    """Return the whole models with scores and metrics, metrics only at layers that have a score."""
    cases = []
    for _, group in groupby(pairs(frame, evaluation.grids(min_share)), key=lambda pair: id(pair[1])):
        found = list(group)
        grid = found[0][1]
        depth = max([grid.depth, *(curve.index.max() for _, _, curve in found if len(curve))])
        if depth not in grid.complete.index or grid.complete.shape[1] < grid.needed:
            continue
        scores = grid.average[grid.average.index >= first_layer]
        own = {tuple(about[name] for name in WHAT): curve[curve.index.isin(scores.index)] for about, _, curve in found}
        metrics = {key: curve for key, curve in own.items() if len(curve)}
        known = {key: (curve, scores[curve.index]) for key, curve in metrics.items() if len(curve) >= FEWEST}
        rhos = {key: float(spearman(x.to_numpy(), y.to_numpy())) for key, (x, y) in known.items()}
        if metrics:
            cases.append(Case(grid.about["model"], grid.about["revision"], metrics, scores, rhos))
    return cases


def fixed_layers(scores: Sequence[tuple[str, pd.Series]]) -> list[int]:
    """Return for each model the layer at the share of depth that ranks best on the others: `fixed_shares`."""
    shares = fixed_shares(scores)[:-1]
    return [
        int(rows.index[_nearest(rows, np.array([share]))[0]]) for (_, rows), share in zip(scores, shares, strict=True)
    ]


def fixed_shares(scores: Sequence[tuple[str, pd.Series]]) -> list[float]:
    """Return for each model the share of depth that ranks best on the others, and last that which ranks best on all.

    `scores` are names of models, of two or more, and their scores by layer down to the last one; several of a model,
    its revisions, count once together and are held out together. A share's rank is that of its layer's score among the
    layers, as a share of their number, so that no model counts for more whose scores lie further apart. Of shares that
    tie it is the middle one.
    """
    ranks = by_model(
        (model, (rows.rank().to_numpy()[_nearest(rows, SHARES)] - 0.5) / len(rows)) for model, rows in scores
    )
    found = []
    for held in (*(model for model, _ in scores), None):
        others = np.mean([mean for name, mean in ranks.items() if name != held], axis=0)
        ties = np.flatnonzero(others >= others.max() - 1e-12)
        found.append(float(SHARES[ties[len(ties) // 2]]))
    return found


def _nearest(rows: pd.Series, shares: Floats) -> npt.NDArray[np.int64]:
    """Return where among the layers the one nearest to each share of the depth is; of a tie the shallower."""
    apart = np.abs(rows.index.to_numpy()[None] / rows.index[-1] - shares[:, None])
    return np.asarray(apart.round(9).argmin(1))


def _fixed_share(cases: Sequence[Case]) -> Rule:
    scores = [(case.model, case.scores) for case in cases]
    layers = fixed_layers(scores)
    choices = tuple(_choice(case, layer, None) for case, layer in zip(cases, layers, strict=True))
    return Rule(FIXED_SHARE, DEPTH, None, math.nan, choices, share=fixed_shares(scores)[-1])


def _choice(case: Case, layer: int, direction: Direction | None) -> Choice:
    scores = case.scores
    score, last, best, mean = (float(value) for value in (scores[layer], scores.iloc[-1], scores.max(), scores.mean()))
    return Choice(case.model, case.revision, direction, layer, score, last, best, mean)


def _fitted(key: Key, cases: Iterable[Case]) -> tuple[Direction | None, float]:
    """Return a metric's direction and mean correlation; each model counts once, whatever its revisions."""
    known = [(case.model, case.correlations.get(key, math.nan)) for case in cases]
    means = by_model((model, value) for model, value in known if math.isfinite(value))
    mean = float(np.mean(list(means.values()))) if means else math.nan
    direction: Direction = "minimum" if mean < 0 else "maximum"
    return direction if abs(mean) >= 1e-12 else None, mean


def _tried(keys: Sequence[Key], cases: Sequence[Case], first_layer: int) -> tuple[Choice, ...]:
    """Return the layer of the lowest mean rank over metrics for each model, directions fitted on the other models.

    Beside each choice stands what a fixed share of depth, chosen on the other models of these very trials, scores.
    """
    choices, tried = [], []
    for case in cases:
        others = [other for other in cases if other.model != case.model]
        fitted = {key: found for key in keys if key in case.metrics and (found := _fitted(key, others)[0])}
        layer = lowest_mean_rank([case.metrics[key] for key in fitted], list(fitted.values()), first_layer)
        if layer is not None:
            tried.append((case.model, case.scores))
            choices.append(_choice(case, layer, fitted[keys[0]] if len(keys) == 1 else None))
    if len({model for model, _ in tried}) < 2:
        return tuple(choices)
    fixed = [float(scores[layer]) for layer, (_, scores) in zip(fixed_layers(tried), tried, strict=True)]
    return tuple(replace(choice, fixed=score) for choice, score in zip(choices, fixed, strict=True))


def _name(what: str, corpus: str | None) -> str:
    return f"{what} · {corpus}" if corpus else what
