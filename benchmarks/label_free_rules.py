"""Judge ways to choose a layer without labels on published scores, each fitted on other models alone.

A candidate is a family of ways to go from metrics and depth to a layer. Everything that is free in it (metric,
direction, band, threshold, share) is set on the other models: the setting whose layers rank best there, checkpoints
averaged within a model first. "which of all" also chooses the candidate there, by holding out each of them in turn.
No way sees a score. Then what it would take to know more, and how often metrics made of noise would have been trusted.

    python benchmarks/label_free_rules.py [--shared ../shared] [--noise 40]
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import chi2

import layerscope
import layerscope.scores as ls
from layerscope.scores.fitting import Case, cases_of, rules_of
from layerscope.scores.grids import MIN_SHARE
from layerscope.scores.rules import by_model
from layerscope.scores.statistics import spearman
from layerscope.scores.trust import distrust, error_of, models_needed

SCORES = ("mteb_scores.csv.gz", "mteb_scores_more.csv.gz")
METRICS = ("metrics.csv.gz", "metrics_more.csv.gz")
FIXED, LAST, ALL = "fixed share of depth", "last layer", "which of all"
SHARES = np.arange(1, 101) / 100
COARSE = SHARES[4::5]
Unit = Callable[[str], str]
"""From a model to what is held out together: itself, or its family."""
Way = Callable[[np.ndarray, np.ndarray], int]
"""From metrics, z-scored `[metrics, layers]`, and depth `[layers]` to a position among the layers."""


@dataclass(frozen=True)
class Outcome:
    """What every setting of a candidate comes to on every model, `[models, settings]`."""

    ranks: np.ndarray
    regrets: np.ndarray
    gains: np.ndarray
    failures: np.ndarray


def candidates(metrics: Sequence[str]) -> Iterator[tuple[str, list[Way]]]:
    """Yield each candidate with all its settings."""
    signed = [(k, sign) for k in range(len(metrics)) for sign in (1, -1)]
    yield LAST, [lambda z, depth: len(depth) - 1]
    yield FIXED, [lambda z, depth, share=share: _at(depth, share) for share in SHARES]
    for k, name in enumerate(metrics):
        yield name, [lambda z, depth, k=k, s=s: int((s * z[k]).argmin()) for s in (1, -1)]
    yield "any metric", [lambda z, depth, k=k, s=s: int((s * z[k]).argmin()) for k, s in signed]
    signs = list(product((1, -1), repeat=len(metrics)))
    yield "mean rank of all", [lambda z, depth, s=s: _ranked(z, dict(enumerate(s))) for s in signs]
    pairs = [dict(pair) for pair in combinations(signed, 2) if pair[0][0] != pair[1][0]]
    yield "mean rank of two", [lambda z, depth, pair=pair: _ranked(z, pair) for pair in pairs]
    bands = [(low, high) for low in (0.0, 0.25, 0.5) for high in (0.75, 0.9, 1.0)]
    yield (
        "metric within a band",
        [lambda z, depth, k=k, s=s, band=band: _within(s * z[k], depth, *band) for k, s in signed for band in bands],
    )
    yield "elbow of a metric", [lambda z, depth, k=k, s=s: _elbow(s * z[k]) for k, s in signed]
    yield (
        "share drawn to a metric",
        [
            lambda z, depth, k=k, s=s, share=share, w=w: _at(depth, (1 - w) * share + w * depth[(s * z[k]).argmin()])
            for (k, s), share, w in product(signed, COARSE[9:], (0.25, 0.5, 0.75))
        ],
    )
    yield (
        "metric, or silent",
        [
            lambda z, depth, k=k, s=s, t=t: _if_ahead(s * z[k], int((s * z[k]).argmin()), t)
            for (k, s), t in product(signed, (0.5, 1.0, 1.5, 2.0))
        ],
    )
    yield (
        "share, or silent",
        [
            lambda z, depth, k=k, s=s, share=share, t=t: _if_ahead(s * z[k], _at(depth, share), t)
            for (k, s), share, t in product(signed, COARSE, (0.0, 0.5, 1.0))
        ],
    )


def _at(depth: np.ndarray, share: float) -> int:
    return int(np.abs(depth - share).round(9).argmin())


def _ranked(z: np.ndarray, signs: dict[int, int]) -> int:
    ranks = [pd.Series(sign * z[k]).rank() for k, sign in signs.items()]
    return int(np.argmin(np.mean(ranks, axis=0)))


def _within(values: np.ndarray, depth: np.ndarray, low: float, high: float) -> int:
    inside = np.where((depth >= low - 1e-9) & (depth <= high + 1e-9), values, np.inf)
    return int(inside.argmin())


def _elbow(values: np.ndarray) -> int:
    """Where the curve bends most, the ends left out."""
    return 1 + int(np.diff(values, 2).argmax()) if len(values) > 2 else len(values) - 1


def _if_ahead(values: np.ndarray, position: int, least: float) -> int:
    """The position if its value lies more than `least` standard deviations below that of the last layer, else that."""
    return position if values[-1] - values[position] > least else len(values) - 1


def outcome(ways: Sequence[Way], cases: Sequence[Case], metrics: Sequence[str], unit: Unit) -> Outcome:
    """Let every setting choose on every case, then judge it: checkpoints averaged within models, these within units."""
    found: dict[str, list[np.ndarray]] = {}
    for case in cases:
        values = {key[1]: curve.reindex(case.scores.index).to_numpy(float) for key, curve in case.metrics.items()}
        raw = np.stack([values[name] for name in metrics])
        z = (raw - raw.mean(1, keepdims=True)) / np.maximum(raw.std(1, keepdims=True), 1e-12)
        depth = case.scores.index.to_numpy() / case.scores.index[-1]
        at = np.array([way(z, depth) for way in ways])  # the only thing that a way is given is metrics and depth
        scores, ranks = 100 * case.scores.to_numpy(), (case.scores.rank().to_numpy() - 0.5) / len(depth)
        gain = scores[at] - scores[-1]
        found.setdefault(case.model, []).append(np.stack([ranks[at], scores.max() - scores[at], gain, gain < -1e-9]))
    means = by_model((unit(model), np.mean(own, axis=0)) for model, own in found.items())
    return Outcome(*np.stack(list(means.values()), axis=1))


def setting(ranks: np.ndarray) -> int:
    """Return the setting that ranks best on the models given, of ties the middle one."""
    mean = ranks.mean(0)
    ties = np.flatnonzero(mean >= mean.max() - 1e-12)
    return int(ties[len(ties) // 2])


def held_out(found: Outcome, fit: Callable[[np.ndarray], int] = setting) -> list[int]:
    """Return for each model the setting that is fitted on all others."""
    return [fit(np.delete(found.ranks, model, 0)) for model in range(len(found.ranks))]


def which_of_all(outcomes: Sequence[Outcome]) -> list[tuple[Outcome, int]]:
    """Return for each model the candidate and setting that do best when each of the others is held out in turn."""
    chosen = []
    for model in range(len(outcomes[0].ranks)):
        others = [replace(each, ranks=np.delete(each.ranks, model, 0)) for each in outcomes]
        inner = [np.mean([each.ranks[i, s] for i, s in enumerate(held_out(each))]) for each in others]
        best = int(np.argmax(inner))
        chosen.append((outcomes[best], setting(others[best].ranks)))
    return chosen


def picked(chosen: Sequence[tuple[Outcome, int]]) -> Outcome:
    """Return what the settings that were chosen for each model come to there, as the one setting of a candidate."""
    fields = ("ranks", "regrets", "gains", "failures")
    return Outcome(*([[getattr(each, name)[i, s]] for i, (each, s) in enumerate(chosen)] for name in fields))


def study(cases: Sequence[Case], metrics: Sequence[str], unit: Unit = str) -> dict[str, tuple[Outcome, Outcome]]:
    """Return by candidate what all its settings come to, and those fitted on the other models."""
    all_settings = {name: outcome(ways, cases, metrics, unit) for name, ways in candidates(metrics)}
    found = {name: (each, picked([(each, s) for s in held_out(each)])) for name, each in all_settings.items()}
    nested = picked(which_of_all(list(all_settings.values())))
    return found | {ALL: (nested, nested)}


def learning(found: Outcome, size: int) -> float:
    """Return the mean regret where only `size` of the other models are at hand, over all such sets."""
    regrets, models = [], range(len(found.ranks))
    for model in models:
        known = combinations([other for other in models if other != model], size)
        regrets.append(np.mean([found.regrets[model, setting(found.ranks[list(own)])] for own in known]))
    return float(np.mean(regrets))


def family(model: str) -> str:
    """Return the letters that a model's name begins with."""
    return re.match("[A-Za-z]*", model)[0]


def report(title: str, cases: Sequence[Case], unit: Unit = str) -> None:
    """Print the tables of one corpus."""
    metrics = sorted(
        set.intersection(*({key[1] for key, x in c.metrics.items() if len(x) == len(c.scores)} for c in cases))
    )
    models = list(dict.fromkeys(unit(case.model) for case in cases))
    found = study(cases, metrics, unit)
    fixed = np.array(found[FIXED][1].regrets)[:, 0]
    print(f"\n## {title}: {len(cases)} checkpoints of {len(models)} models, metrics {', '.join(metrics)}\n")
    sizes = range(1, len(models))
    names = [*(f"regret {model}" for model in models), *(f"fit on {size}" for size in sizes)]
    print("| " + " | ".join(["candidate", "settings", "regret", "gain", "failed", "ahead of fixed", *names]) + " |")
    print("| --- " * (6 + len(names)) + "|")
    leads = {}
    for name, (each, own) in found.items():
        regrets, gains = np.array(own.regrets)[:, 0], np.array(own.gains)[:, 0]
        leads[name] = fixed - regrets
        curve = ["" if name == ALL else f"{learning(each, size):.2f}" for size in sizes]
        cells = [
            name, "" if name == ALL else str(each.ranks.shape[1]), f"{regrets.mean():.2f} ±{error_of(regrets):.2f}",
            f"{gains.mean():+.2f} ±{error_of(gains):.2f}", f"{100 * np.mean(own.failures):.0f} %",
            f"{leads[name].mean():+.2f} ±{error_of(leads[name]):.2f}", *(f"{regret:.2f}" for regret in regrets), *curve,
        ]  # fmt: skip
        print("| " + " | ".join(cells) + " |")
    rivals = {name: lead for name, lead in leads.items() if name not in (FIXED, LAST)}
    spread = float(np.median([lead.std(ddof=1) for lead in rivals.values()]))
    low, high = spread * np.sqrt((len(models) - 1) / chi2.ppf((0.975, 0.025), len(models) - 1))
    print(
        f"\nMedian standard deviation over models of a lead over the fixed share: {spread:.2f} points, with "
        f"{len(models)} models anything from {low:.2f} to {high:.2f}. If leads are normal "
        "with that spread and models are independent, a lead of 1 point is found 4 times of 5 (t test, one-sided, 5 %) "
        f"with {models_needed(spread, 1, 1)} models for one rule named before, {models_needed(spread, 1, len(rivals))} "
        f"for the best of {len(rivals)}; of half a point with {models_needed(spread, 0.5, 1)} and "
        f"{models_needed(spread, 0.5, len(rivals))}."
    )


def noise(cases: Sequence[Case], draws: int) -> tuple[float, float]:
    """Return how often a metric of noise is trusted beside these scores: by its means alone, and as it is now."""
    random, found = np.random.default_rng(0), np.zeros((draws, 2))
    for draw in range(draws):
        made = []
        for case in cases:
            walks = {k: pd.Series(random.normal(size=len(x)).cumsum(), x.index) for k, x in case.metrics.items()}
            rhos = {k: float(spearman(x.to_numpy(), case.scores[x.index].to_numpy())) for k, x in walks.items()}
            made.append(replace(case, metrics=walks, correlations=rhos))
        rules = [rule for rule in rules_of(made) if rule.share is None]
        reasons = [distrust(rule, None, len(rules)) for rule in rules]
        found[draw] = any(not reason or "certain" in reason for reason in reasons), not all(reasons)
    return tuple(found.mean(0))


def main() -> None:
    """Print the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--noise", type=int, default=40)
    asked = parser.parse_args()
    folder = asked.shared / "data" / "published_layerwise"
    scores = pd.concat([layerscope.open_evaluation(folder / name).scores for name in SCORES], ignore_index=True)
    frames = pd.concat([ls.open_metrics(folder / name) for name in METRICS], ignore_index=True)
    cases = cases_of(ls.one_variant(ls.corpus_averages(frames)), ls.Evaluation(scores), 1, MIN_SHARE)
    whole = {family(case.model) for case in cases}
    for corpus in ("wikitext", "tasks"):
        own = [replace(c, metrics={k: x for k, x in c.metrics.items() if k[0] == corpus}) for c in cases]
        report(f"metrics on {corpus}", [case for case in own if case.metrics])
        if len(whole) > 1:
            report(f"metrics on {corpus}, by family", [case for case in own if case.metrics], family)
    if len(whole) < 2:
        part = {family(model) for model in scores["model"]} - whole
        print(f"\nBy family: not decided, as {', '.join(whole)} alone is wholly scored ({', '.join(part)}: in part).")
    before, now = noise(cases, asked.noise)
    print(
        f"\nWith metrics that are random walks in place of the real ones, some rule passes by its means alone in "
        f"{100 * before:.0f} % of {asked.noise} draws, and with the test of its leads in {100 * now:.0f} %."
    )


if __name__ == "__main__":
    main()
