"""Each judge of Layer by Layer on values in which its claim is true by construction, and in which it is false."""

import math

import numpy as np
import pandas as pd
import pytest
from frames import measured, scored
from papers.worlds import World, verdicts

from layerscope.scores import Evaluation
from layerscope_papers import released
from layerscope_papers.catalogue import recipes
from layerscope_papers.layers import curves, prompts, theorems

BERT = "bert-base", "bert-large", "bert-huge"
LAYERS = np.arange(13)
HUMP = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0])
"""What is high in the middle of six layers."""


@pytest.fixture
def judged(monkeypatch):
    """Return a function that judges a recipe on values that are made up: scores, metrics, entropies of prompts."""
    monkeypatch.setattr(curves, "BIDIRECTIONAL", BERT)

    def judge(name, settings=None, entropy=None, **values):
        for kind, value in values.items():
            monkeypatch.setattr(released, kind, lambda assets, value=value: value)
        monkeypatch.setattr(prompts, "entropy", entropy)
        return verdicts(name, World(None, settings))

    return judge


def scores(middle):
    """Return scores of the models on 8 tasks, the middle layers better than the last by some points."""
    draws = np.random.default_rng(0)
    gain = middle / 100 * (HUMP if middle > 0 else np.arange(7) < 6)
    rows = [
        scored(
            {f"task {n}": 0.4 + gain + draws.normal(0, 1e-3, 7) for n in range(8)},
            model,
            revision="main",
        )
        for model in released.SCORED.values()
    ]
    return Evaluation(pd.concat(rows, ignore_index=True))


KINDS = dict.fromkeys(("curvature", "infonce", "dime", "dataset_entropy"), "raw")
KINDS |= dict.fromkeys(("prompt_entropy", "lidar"), "maxEntropy")
"""The variant of each metric that is released."""


def metrics(values, depth=12):
    """Return metrics by layer: `values(model, metric, layers, dataset)` for each."""
    models = (*released.PARAMETERS, *BERT, *released.MAMBA)
    rows = [
        measured(
            {metric: values(model, metric, np.arange(depth + 1), number)},
            model,
            revision="main",
            dataset=dataset,
            variant=variant,
        )
        for model in models
        for number, dataset in enumerate(("wikitext", "mteb/a", "mteb/b", "mteb/c"))
        for metric, variant in KINDS.items()
    ]
    return pd.concat(rows, ignore_index=True)


def valley(deep):
    def values(model, metric, layers, number):
        depth = deep if model.startswith("Pythia") else 0.1
        level = 0.8 if model.startswith("bert") else 0.8 - deep / 10
        return level + 0.001 * number - depth * np.sin(np.pi * layers / layers[-1])

    return values


def by_size(sign):
    def values(model, metric, layers, number):
        size = np.log10(released.PARAMETERS.get(model, 1e8))
        growth = sign * size + 1e-3 * np.sin(size * 50)
        if metric == "prompt_entropy":
            return -growth * np.sin(np.pi * layers / layers[-1])
        return np.full(len(layers), -growth if metric == "curvature" else growth)

    return values


def going(*with_scores):
    def values(model, metric, layers, number):
        noise = np.random.default_rng(len(metric) + 100 * number).normal(size=7)
        share = 0.001 if metric == "dime" else 0.2
        return HUMP + (share if metric in with_scores else 100) * noise

    return values


def over_training(sign):
    """Return metrics by step in which the middle moves most, and down to the lowest.

    With sign −1 it moves least, up, and is the highest.
    """
    speeds = np.repeat((1.0, -3.0 if sign > 0 else 0.3, 1.0), 4)
    late_speed_of_the_first = 0.1 if sign > 0 else 3.0
    frames = []
    for metric, variant in curves.OVER_TRAINING.items():
        values = np.r_[30.0, np.repeat((30.0, 30.0 if sign > 0 else 50.0, 30.0), 4)]
        values += 1e-3 * len(metric) * LAYERS
        for step in (1, 16, 256, 4000, 16000, 64000, 128000):
            revisions = [(f"step{step}", "wikitext")]
            if step == 128000:
                data = "wikitext", "mteb/a", "mteb/b"
                revisions += [("main", name) for name in data]
            for number, (revision, dataset) in enumerate(revisions):
                about = {"revision": revision, "dataset": dataset, "variant": variant}
                rows = {metric: values + 0.01 * number * LAYERS}
                frames.append(measured(rows, "Pythia-410m", **about))
            moved = speeds.copy()
            if step >= curves.LATE:
                moved[:4] *= late_speed_of_the_first
            values = values + np.r_[0.0, moved]
    return pd.concat(frames, ignore_index=True)


def entropies(**sites):
    """Return entropies of 30 texts at layers 0 … 12 of each site, with a little noise."""
    draws = np.random.default_rng(0)
    frames = {
        site: pd.DataFrame(curve + draws.normal(0, 1e-3, (30, 13)))
        for site, curve in sites.items()
    }
    return pd.concat(frames, axis=1)


def dip(depth):
    """Return entropies of layers 0 … 12 that fall by a depth in the middle."""
    return 3.0 - depth * np.sin(np.pi * LAYERS / 12)


def inside(branch, sums):
    def read(assets, *options):
        branches = {"attn": dip(branch), "mlp": dip(branch)}
        found = entropies(raw=dip(sums), attn_residual=dip(sums), **branches)
        return found.drop(columns=[(site, 0) for site in (*branches, "attn_residual")])

    return read


def changed(sign):
    early, middle = (LAYERS > 0) & (LAYERS < 5), (LAYERS > 4) & (LAYERS < 9)

    def read(assets, *options, setup=None):
        curve = 3.0 + 0 * LAYERS
        for name, value in options:
            if name == "repeat_tokens":
                curve = curve - sign * 0.2 * middle
            if name == "random_tokens":
                curve = curve + sign * 0.2 * early
            if name == "max_length":
                length = np.log(value)
                curve = curve + (np.log(length) if sign > 0 else -0.1 * length)
        return entropies(raw=curve)

    return read


def growing(assets, *options, setup=None):
    return entropies(raw=3.0 + (dict(options).get("max_length", 64) / 100) ** 2)


def after_tuning(sign):
    spread = np.random.default_rng(1).normal(0, 0.1, (30, 1))

    def read(assets, *options, setup):
        is_tuned = setup is prompts.REASONING[1]
        width = 1 - sign * 0.5 * is_tuned
        return entropies(raw=3.0 + sign * 0.5 * is_tuned + width * spread)

    return read


FOLLOWING = {1: ("curvature", "dime", "infonce"), -1: ("prompt_entropy", "lidar")}
JUDGED = {
    "L-fig1": lambda sign: {"scores": scores(5.0 * sign)},
    "L-fig2": lambda sign: {"metrics": metrics(valley(0.5 * sign))},
    "L-fig3": lambda sign: {
        "scores": scores(5.0),
        "metrics": metrics(going(*FOLLOWING[sign]), 6),
    },
    "L-fig4": lambda sign: {"metrics": over_training(sign)},
    "L-fig5": lambda sign: {
        "settings": prompts.REASONING,
        "entropy": after_tuning(sign),
    },
    "L-fig12": lambda sign: {"metrics": metrics(by_size(sign))},
    "L-fig15": lambda sign: {"entropy": inside(0.1 if sign > 0 else 2.0, 1.0)},
}
"""Values in which every claim of a recipe is true, or (sign −1) every claim false."""


@pytest.mark.parametrize("sign, word", [(1, "held"), (-1, "did not hold")])
@pytest.mark.parametrize("name", JUDGED)
def test_a_claim_holds_where_it_is_true_and_does_not_where_it_is_false(
    judged, name, sign, word
):
    assert set(judged(name, **JUDGED[name](sign)).values()) == {word}


@pytest.mark.parametrize("sign, word", [(1, "held"), (-1, "did not hold")])
def test_changed_and_longer_prompts(judged, sign, word):
    found = judged("L-fig6", entropy=changed(sign))
    assert found.pop("falling") == "held" or sign < 0
    assert set(found.values()) == {word}
    assert judged("L-fig6", entropy=growing)["falling"] == "did not hold"


def test_no_valley_after_additions_is_none_that_they_bring(judged):
    found = judged("L-fig15", entropy=inside(0.1, 0.0))
    assert set(found.values()) == {"not applicable"}


def test_layers_that_are_hardly_scored_and_layer_0_are_no_candidates(monkeypatch):
    rows = scores(5.0).scores
    best, first = rows["layer"].eq(3), rows["layer"].eq(0)
    rows.loc[best | first, "score"] += 1.0
    few = best & ~rows["task"].isin(["task 0", "task 1"])
    monkeypatch.setattr(released, "scores", lambda assets: Evaluation(rows[~few]))
    evidence = recipes()["L-fig1"].judge(World(None))
    numbers = {number.quantity: number.value for number in evidence.numbers}
    near_five = pytest.approx(5, abs=0.2)
    assert evidence.intervals["mamba-370m"].value == near_five
    assert numbers["mamba-370m, number of the best layer"] in (2, 4)
    assert numbers["largest gain of the best layer [points]"] == near_five
    assert any("candidates: layer 3" in note for note in evidence.notes)


def test_a_metric_with_gaps_between_layers_judges_no_model(judged):
    def with_gaps(model, metric, layers, number):
        values = by_size(1)(model, metric, layers, number)
        is_whole = metric != "curvature" or model in ("Pythia-14m", "Pythia-70m")
        return np.where(is_whole | (layers % 3 == 0), values, np.nan)

    assert judged("L-fig12", metrics=metrics(with_gaps)) == {
        "compression": "held",
        "smoothness": "not applicable",
        "invariance": "held",
    }


def test_released_layers_come_in_their_order():
    rows = metrics(valley(0.5)).sample(frac=1, random_state=0)
    assert released.curves(rows, "lidar", "maxEntropy").columns.is_monotonic_increasing


@pytest.mark.parametrize("sign, word", [(1, "held"), (-1, "did not hold")])
def test_a_layer_without_labels(judged, sign, word):
    def values(model, metric, layers, number):
        good = HUMP + 0.01 * (layers == 3)
        return sign * good if model == "Pythia-410m" else good

    made = scores(5.0)
    rows = made.scores
    last = rows["model"].eq("Pythia-410m") & rows["layer"].eq(6)
    rows.loc[last, "score"] += 0.03 * (sign < 0)
    given = {"metrics": metrics(values, 6), "scores": Evaluation(rows)}
    assert judged("L-appE", **given) == {"dime": word}


@pytest.mark.parametrize(
    "raw, others, words",
    [
        (1.0, 1.0, ("held", "held")),
        (1.0, -1.0, ("held", "did not hold")),
        (-1.0, -1.0, ("not applicable", "not applicable")),
    ],
)
def test_a_valley_under_each_scaling_of_rows(judged, raw, others, words):
    def scaled(assets, *options):
        return entropies(raw=dip(raw if options == prompts.ROWS["raw"] else others))

    found = judged("L-rows", entropy=scaled)
    assert (found["raw"], found["unit"]) == words
    assert found["centred"] == found["unit"]


def test_which_bounds_which(monkeypatch):
    assert verdicts("L-thm1", World(None)) == {
        "printed": "did not hold",
        "reverse": "held",
    }
    monkeypatch.setattr(
        theorems, "_rank", lambda states: theorems._entropy(states) - 0.1
    )
    assert verdicts("L-thm1", World(None)) == {
        "printed": "held",
        "reverse": "did not hold",
    }


def test_a_bound_on_information(monkeypatch):
    assert verdicts("L-thm3", World(None)) == {
        "bound": "held",
        "entropy": "did not hold",
    }
    real = theorems.bound
    monkeypatch.setattr(theorems, "bound", lambda symbols: real(symbols) + 0.1)
    assert verdicts("L-thm3", World(None))["bound"] == "did not hold"
    monkeypatch.setattr(theorems, "_entropy", lambda states: math.log(64))
    assert verdicts("L-thm3", World(None))["entropy"] == "held"
