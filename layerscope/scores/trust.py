"""When the record of a rule without labels is enough to follow it unasked, and how much more would be."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from layerscope.core.errors import count
from layerscope.scores.naming import Unit
from layerscope.scores.rules import Rule, by_model

MODELS = 2
"""Held-out models of the same kind that a rule must have been tried on."""
FAILED = 1 / 4
"""Share of its choices that may score less than the last layer, mean over models."""
RISK = 0.05
"""Chance that any of the rules that were tried is trusted though it is no better than a rival."""
POWER = 0.8
"""Chance of seeing a lead that is there, for the number of models that it would take."""
POINT = 0.01
MOST_MODELS = 10_000
RIVALS = {"last": "the last layer", "mean": "a layer drawn at random", "fixed": "a fixed share of depth"}
"""What a rule must be ahead of, by the field of a `Choice` that holds its score."""


def leads(rule: Rule, rival: str) -> list[float]:
    """Return by model how much more the chosen layers score than a rival of the same trials; empty if not compared."""
    known = [(choice.model, choice.score, getattr(choice, rival)) for choice in rule.choices]
    return [float(lead) for lead in by_model((m, own - other) for m, own, other in known if other is not None).values()]


def error_of(values: Sequence[float]) -> float:
    """Return the standard error of a mean over models."""
    return float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else math.inf


def least_lead(models: int, tried: int) -> float:
    """Return how many standard errors a mean lead must exceed: Student's t, one-sided, `RISK` shared by all rules."""
    from scipy.stats import t

    return float(t.ppf(1 - RISK / tried, models - 1))


def distrust(rule: Rule, kind: str | None, tried: int = 1) -> str | None:
    """Return why a rule is not to be trusted for a model of this kind, or None where it is.

    It must have been tried on two held-out models of that kind, have fallen behind the last layer in at most a quarter
    of its choices, and have had one direction in all of them. It must be ahead of the last layer, of a layer drawn at
    random and of a fixed share of depth chosen on the other models, by more than the spread of models explains: a t
    test of each lead at 5 %, shared by the `tried` rules, as the best of many is ahead by chance. Every mean is over
    models, each that over its checkpoints.
    """
    rule = of_kind(rule, kind)
    models = len(rule.gains)
    found = {name: leads(rule, name) for name in RIVALS if name != "fixed" or rule.share is None}
    if models < MODELS:
        return f"tried on {models} held-out {kind or 'comparable'} models, {MODELS} are needed"
    if not all(map(len, found.values())):
        return "was never compared with a fixed share of depth"
    for name, own in found.items():
        if not np.mean(own) > 0:
            number = Unit(abs(rule.mean_regret) <= 1).number
            with_regret = f": regret {number(rule.mean_regret)}, against {number(rule.fixed_regret)}" * (
                name == "fixed"
            )
            return f"gains no more than {RIVALS[name]}{with_regret}"
    if rule.failure_share > FAILED:
        return f"fell behind the last layer {rule.failures} of {len(rule.choices)} times"
    if rule.direction and rule.agreeing < len(rule.choices):
        return "its direction differs between the models"
    for name, own in found.items():
        error = error_of(own)
        if not np.mean(own) > least_lead(len(own), tried) * error:
            number = Unit(abs(rule.mean_regret) <= 1).number
            lead = f"{number(float(np.mean(own)), sign=True)} ±{number(error)}"
            on = f"{count(len(own), 'model')}, {count(tried, 'rule')} tried"
            return f"its lead over {RIVALS[name]}, {lead}, is not certain: {on}"
    return None


def of_kind(rule: Rule, kind: str | None) -> Rule:
    """Return a rule with the choices for models of one kind, or of an unknown one."""
    return replace(rule, choices=tuple(choice for choice in rule.choices if choice.kind in (None, kind)))


def models_needed(spread: float, lead: float, tried: int) -> int:
    """Return how many models it takes to find a lead over a rival, by the t test of `distrust`, 4 times of 5.

    `spread` is the standard deviation of the lead over models, which is taken for normal and for known.
    """
    from scipy.stats import nct

    size = (n for n in range(2, MOST_MODELS) if nct.sf(least_lead(n, tried), n - 1, n**0.5 * lead / spread) >= POWER)
    return MOST_MODELS if lead <= 0 else 2 if spread <= 0 else next(size, MOST_MODELS)


def more_evidence(rules: Iterable[Rule], kind: str | None) -> str:
    """Return how many scored models would tell a rule from a fixed share of depth, in a sentence; empty if unknown."""
    own = [of_kind(rule, kind) for rule in rules if rule.share is None]
    known = [found for rule in own if len(found := leads(rule, "fixed")) >= MODELS]
    if not known:
        return ""
    found = max(known, key=len)
    spread = float(np.median([np.std(each, ddof=1) for each in known if len(each) == len(found)]))
    share = all(abs(choice.best) <= 1 for rule in own for choice in rule.choices)
    needed = models_needed(spread, POINT if share else 100 * POINT, len(own))
    return (
        f"to be certain of one that is a point better than a fixed share of depth would take some {needed:,} scored "
        f"models, at the spread of these {len(found)}"
    )
