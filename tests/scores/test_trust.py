"""What makes a record enough: noise is never trusted, what tracks the score is, and a leak shows."""

import math

import numpy as np
import pandas as pd
import pytest
from frames import measured, scored
from scipy import stats

import layerscope.scores as ls
from layerscope.scores import Choice, Evaluation, Rule, fitting
from layerscope.scores.trust import distrust, error_of, leads, least_lead, models_needed, more_evidence

LAYERS, METRICS = 12, 8


def evidence(models: int, seed: int, tracks: float | None = None) -> list[Rule]:
    """Rules of metrics that are random walks, beside scores that are best near 70 % of the depth on average.

    With `tracks` one more metric is the score plus noise of that size.
    """
    random, depth = np.random.default_rng(seed), np.arange(LAYERS) / (LAYERS - 1)
    scores, metrics = [], []
    for model in (f"m{i}" for i in range(models)):
        walk = 0.02 * random.normal(size=LAYERS).cumsum() + 0.5 - 0.1 * (depth - 0.7) ** 2
        rows = {f"noise{k}": random.normal(size=LAYERS).cumsum().tolist() for k in range(METRICS)}
        if tracks is not None:
            rows["true"] = (walk + tracks * random.normal(size=LAYERS)).tolist()
        scores.append(scored({"a": walk.tolist()}, model))
        metrics.append(measured(rows, model))
    return ls.fit_rules(pd.concat(metrics), Evaluation(pd.concat(scores)))


def trusted(rules: list[Rule]) -> list[str]:
    return [rule.metric for rule in rules if distrust(rule, None, len(rules)) is None]


def regrets(worlds: list[list[Rule]]) -> tuple[float, float]:
    """Mean regret of the rules on noise, and of the fixed share, over worlds."""
    own = [rule for rules in worlds for rule in rules if rule.metric.startswith("noise")]
    return float(np.mean([rule.mean_regret for rule in own])), float(np.mean([rule.fixed_regret for rule in own]))


def test_noise_is_not_trusted_and_regrets_no_less_than_the_fixed_share_unless_there_is_a_leak(monkeypatch):
    """The planted fault: each direction is fitted on the very model that it is then tried on."""
    worlds = [evidence(models, seed) for models in (3, 8) for seed in range(4)]
    assert [trusted(rules) for rules in worlds] == [[]] * len(worlds)
    honest, fixed = regrets(worlds)
    assert honest > fixed

    fitted, of, every = fitting._fitted, fitting.rules_of, []

    def leaking(key, cases):
        known = {case.model for case in cases}
        return fitted(key, [case for case in every if case.model not in known] or cases)

    monkeypatch.setattr(
        fitting, "rules_of", lambda cases, first: of(every.__setitem__(slice(None), cases) or cases, first)
    )
    monkeypatch.setattr(fitting, "_fitted", leaking)
    worlds = [evidence(models, seed) for models in (3, 8) for seed in range(4)]
    wrong, same = regrets(worlds)
    assert same == pytest.approx(fixed, rel=0.02) and wrong < fixed, "noise would seem better than the fixed share"


def test_a_metric_that_tracks_the_score_is_trusted():
    rules = evidence(16, 0, tracks=0.002)
    assert trusted(rules) == ["true"]
    (true,) = (rule for rule in rules if rule.metric == "true")
    assert true.mean_regret < 0.2 * true.fixed_regret
    assert "is not certain" in distrust(evidence(3, 0, tracks=0.002)[0], None, METRICS + 1), "three models are few"


def test_leads_by_hand():
    choices = (
        Choice("m", "a", "minimum", 2, 0.6, 0.5, 0.7, 0.55, None, 0.58),
        Choice("m", "b", "minimum", 2, 0.7, 0.5, 0.7, 0.55, None, 0.58),
        Choice("n", "a", "minimum", 4, 0.45, 0.5, 0.6, 0.52, None, 0.53),
    )
    rule = Rule("r", "lidar", "minimum", -0.5, choices)
    assert leads(rule, "last") == pytest.approx([0.15, -0.05]) and leads(rule, "fixed") == pytest.approx([0.07, -0.08])
    assert error_of([0.15, -0.05]) == pytest.approx(0.1) and math.isinf(error_of([0.1]))
    assert rule.mean_regret == pytest.approx((0.05 + 0.15) / 2) and rule.fixed_regret == pytest.approx(
        (0.12 + 0.07) / 2
    )
    assert least_lead(4, 1) == pytest.approx(2.3534, abs=1e-4) and least_lead(4, 10) > 5


@pytest.mark.parametrize(("spread", "tried"), [(1.0, 1), (2.0, 1), (1.0, 10)])
def test_the_models_that_it_takes_find_the_lead_four_times_of_five(spread, tried):
    n = models_needed(spread, 1.0, tried)
    random = np.random.default_rng(0)

    def found(models: int) -> float:
        drawn = random.normal(1.0, spread, (20_000, models))
        t = stats.ttest_1samp(drawn, 0, axis=1, alternative="greater").pvalue
        return float((t < 0.05 / tried).mean())

    assert found(n - 1) - 0.01 < 0.8 < found(n) + 0.01


def test_what_more_evidence_would_buy():
    rule = Rule("r", "lidar", "minimum", -0.5, tuple(
        Choice(f"m{i}", "", "minimum", 2, 0.6 + gap, 0.5, 0.9, 0.5, "causal", 0.6) for i, gap in enumerate((0.0, 0.04))
    ))  # fmt: skip
    n = models_needed(np.std([0, 0.04], ddof=1), 0.01, 1)
    assert f"would take some {n:,} scored models, at the spread of these 2" in more_evidence([rule], "causal")
    assert more_evidence([rule], "bidirectional") == "" == more_evidence([], None)
