"""The study of ways to choose without labels: nothing leaks from the model held out, truth wins, silence works."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from layerscope.scores.fitting import Case

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "label_free_rules.py"
SPEC = importlib.util.spec_from_file_location("label_free_rules_study", FILE)
study = importlib.util.module_from_spec(SPEC)
METRICS = ["a", "b", "c"]
LAYERS = range(1, 13)


@pytest.fixture(scope="module", autouse=True)
def loaded():
    import sys

    sys.modules[SPEC.name] = study  # dataclasses look their module up
    SPEC.loader.exec_module(study)
    yield
    del sys.modules[SPEC.name]


def case(model: str, scores: np.ndarray, metrics: list[np.ndarray], revision: str = "") -> Case:
    keys = [("c", name, None, None, None) for name in METRICS]
    curves = {key: pd.Series(values, LAYERS) for key, values in zip(keys, metrics, strict=True)}
    return Case(model, revision, curves, pd.Series(scores, LAYERS), {})


def noise(models: int = 6, seed: int = 0) -> list[Case]:
    """Scores that are best near 70 % of the depth, give or take, and metrics that know nothing of them."""
    random, depth = np.random.default_rng(seed), np.arange(12) / 11
    made = []
    for i in range(models):
        scores = 0.5 - 0.1 * (depth - 0.7) ** 2 + 0.01 * random.normal(size=12).cumsum()
        made.append(case(f"m{i}", scores, [random.normal(size=12).cumsum() for _ in METRICS]))
    return made


def test_on_noise_no_candidate_does_better_than_the_fixed_share_and_a_leak_would():
    honest, leaking = [], []
    for seed in range(5):
        found = study.study(noise(seed=seed), METRICS)
        fixed = np.mean(found[study.FIXED][1].regrets)
        names = ("any metric", "mean rank of two", "metric, or silent", "elbow of a metric", study.ALL)
        honest += [np.mean(found[name][1].regrets) - fixed for name in names]
        every = found["mean rank of two"][0]  # the planted fault: settings that rank best on the model held out
        own = study.picked([(every, study.setting(every.ranks[[i]])) for i in range(len(every.ranks))])
        leaking.append(np.mean(own.regrets) - fixed)
    assert np.mean(honest) > 0 > np.mean(leaking)


def test_scores_of_the_model_held_out_change_none_of_its_choices():
    cases, model = noise(), 3
    other = [*cases]
    other[model] = case(
        "m3", cases[model].scores.to_numpy()[::-1].copy(), [x.to_numpy() for x in cases[model].metrics.values()]
    )
    outcomes = [
        {name: study.outcome(ways, given, METRICS, str) for name, ways in study.candidates(METRICS)}
        for given in (cases, other)
    ]
    for name in outcomes[0]:
        before, after = (study.held_out(found[name])[model] for found in outcomes)
        assert before == after, name
    (before, s), (after, t) = (study.which_of_all(list(found.values()))[model] for found in outcomes)
    names = [[name for name, each in found.items() if each.ranks.shape == chosen.ranks.shape]
             for found, chosen in zip(outcomes, (before, after), strict=True)]  # fmt: skip
    assert s == t and names[0] == names[1]


def test_what_tracks_the_score_is_found():
    random, cases = np.random.default_rng(0), noise()
    for i, each in enumerate(cases):
        scores = random.permutation(each.scores.to_numpy())  # no share of depth is good
        cases[i] = case(f"m{i}", scores, [random.normal(size=12), -scores, random.normal(size=12)])
    found = study.study(cases, METRICS)
    assert {name for name in ("b", "any metric", study.ALL) if np.mean(found[name][1].regrets) < 1e-9} == {
        "b", "any metric", study.ALL
    }  # fmt: skip
    assert np.mean(found[study.FIXED][1].regrets) > 0.1


def test_silence_keeps_the_last_layer_where_the_metric_says_little():
    flat, deep = np.zeros(12), np.zeros(12)
    deep[4] = -3.0
    assert study._if_ahead(deep, 4, 1.0) == 4 and study._if_ahead(flat, 4, 1.0) == 11
    assert study._if_ahead(deep / 10, 4, 1.0) == 11
    random, cases = np.random.default_rng(0), []
    for i in range(8):  # half of the models are best where the metric dips clearly, the others at the last layer
        clear = i % 2 == 0
        metric, at = 0.3 * random.normal(size=12), int(random.integers(2, 9))
        metric[at] -= 6.0 * clear
        metric[-1] = metric.max() if clear else metric.min() + 0.05
        scores = np.full(12, 0.3)
        scores[at if clear else -1] = 0.6
        cases.append(case(f"m{i}", scores, [metric, random.normal(size=12), random.normal(size=12)]))
    found = {name: np.mean(own.regrets) for name, (_, own) in study.study(cases, METRICS).items()}
    assert found["metric, or silent"] < 1e-9 < min(found["a"], found[study.LAST], found[study.FIXED])


def test_checkpoints_count_as_one_model():
    cases = noise(3)
    many = [*cases, *(Case(cases[0].model, f"step{i}", cases[0].metrics, cases[0].scores, {}) for i in range(9))]
    one, all_of_them = (study.study(given, METRICS) for given in (cases, many))
    for name, (_, own) in one.items():
        assert np.array(own.regrets) == pytest.approx(np.array(all_of_them[name][1].regrets)), name
