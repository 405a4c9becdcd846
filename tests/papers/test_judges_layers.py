"""Each judge of Layer by Layer on values in which its claim is true by construction, and in which it is false."""

import math

import numpy as np
import pandas as pd
import pytest
from papers.worlds import World, verdicts

from layerscope.scores import Evaluation
from layerscope_papers import released
from layerscope_papers.catalogue import recipes
from layerscope_papers.layers import curves, prompts, theorems

COLUMNS = ["model", "revision", "dataset", "metric", "variant", "layer", "value"]


def scores(middle):
    """Return scores of the models on 8 tasks, the middle layers better than the last by some points."""
    draws = np.random.default_rng(0)
    rows = [
        {
            "model": model,
            "revision": "main",
            "layer": layer,
            "task": f"task {task}",
            "score": 0.4
            + middle / 100 * (2 <= layer <= 4 if middle > 0 else layer < 6)
            + draws.normal(0, 1e-3),
        }
        for model in released.SCORED.values()
        for layer in range(7)
        for task in range(8)
    ]
    return Evaluation(pd.DataFrame(rows))


@pytest.mark.parametrize("gain, word", [(5.0, "held"), (-5.0, "did not hold")])
def test_middle_layers_against_the_last(monkeypatch, gain, word):
    monkeypatch.setattr(released, "scores", lambda assets: scores(gain))
    assert set(verdicts("L-fig1", World(None)).values()) == {word}


def test_layers_that_are_hardly_scored_and_layer_0_are_no_candidates(monkeypatch):
    rows = scores(5.0).scores
    best = rows["layer"].eq(3)
    rows.loc[best, "score"] += 1.0
    few = best & ~rows["task"].isin(["task 0", "task 1"])
    first = rows["layer"].eq(0)
    rows.loc[first, "score"] += 1.0
    monkeypatch.setattr(released, "scores", lambda assets: Evaluation(rows[~few]))
    evidence = recipes()["L-fig1"].judge(World(None))
    numbers = {number.quantity: number.value for number in evidence.numbers}
    assert evidence.intervals["mamba-370m"].value == pytest.approx(5, abs=0.2)
    assert numbers["mamba-370m, number of the best layer"] in (2, 4)
    assert numbers["largest gain of the best layer [points]"] == pytest.approx(
        5, abs=0.2
    )
    assert any("candidates: layer 3" in note for note in evidence.notes)


def metrics(values, depth=12):
    """Return metrics by layer: `values(model, metric, layers, dataset)` for each."""
    bert = "bert-base", "bert-large", "bert-huge"
    models = dict.fromkeys((*released.PARAMETERS, *bert, *released.MAMBA), depth)
    kinds = [
        ("prompt_entropy", "maxEntropy"),
        ("curvature", "raw"),
        ("infonce", "raw"),
        ("dime", "raw"),
        ("lidar", "maxEntropy"),
        ("dataset_entropy", "raw"),
    ]
    rows = [
        (model, "main", dataset, metric, variant, layer, value)
        for model, depth in models.items()
        for number, dataset in enumerate(("wikitext", "mteb/a", "mteb/b", "mteb/c"))
        for metric, variant in kinds
        for layer, value in enumerate(
            values(model, metric, np.arange(depth + 1), number)
        )
    ]
    return pd.DataFrame(rows, columns=COLUMNS).assign(site=None, pooling=None)


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


@pytest.mark.parametrize("sign, word", [(1, "held"), (-1, "did not hold")])
@pytest.mark.parametrize("name", ["L-fig2", "L-fig4", "L-fig12"])
def test_valleys_larger_models_and_training_on_the_released_metrics(
    monkeypatch, name, sign, word
):
    made = {
        "L-fig2": lambda: metrics(valley(0.5 * sign)),
        "L-fig4": lambda: over_training(sign),
        "L-fig12": lambda: metrics(by_size(sign)),
    }
    monkeypatch.setattr(
        curves, "BIDIRECTIONAL", ("bert-base", "bert-large", "bert-huge")
    )
    monkeypatch.setattr(released, "metrics", lambda assets: made[name]())
    assert set(verdicts(name, World(None)).values()) == {word}


def test_a_metric_with_gaps_between_layers_judges_no_model(monkeypatch):
    def with_gaps(model, metric, layers, number):
        values = by_size(1)(model, metric, layers, number)
        is_whole = metric != "curvature" or model in ("Pythia-14m", "Pythia-70m")
        return np.where(is_whole | (layers % 3 == 0), values, np.nan)

    monkeypatch.setattr(released, "metrics", lambda assets: metrics(with_gaps))
    assert verdicts("L-fig12", World(None)) == {
        "compression": "held",
        "smoothness": "not applicable",
        "invariance": "held",
    }


def test_released_layers_come_in_their_order():
    rows = metrics(valley(0.5)).sample(frac=1, random_state=0)
    assert released.curves(rows, "lidar", "maxEntropy").columns.is_monotonic_increasing


def test_which_metrics_go_with_scores(monkeypatch):
    strong = ("curvature", "dime", "infonce")

    def going(with_scores):
        def values(model, metric, layers, number):
            noise = np.random.default_rng(len(metric) + 100 * number).normal(
                size=len(layers)
            )
            signal = np.where((layers >= 2) & (layers <= 4), 1.0, 0.0)
            if metric not in with_scores:
                return signal + 100 * noise
            return signal + (0.001 if metric == "dime" else 0.2) * noise

        return values

    monkeypatch.setattr(released, "scores", lambda assets: scores(5.0))
    monkeypatch.setattr(released, "metrics", lambda assets: metrics(going(strong)))
    assert verdicts("L-fig3", World(None)) == {"lead": "held", "strongest": "held"}
    others = ("prompt_entropy", "dataset_entropy", "lidar")
    monkeypatch.setattr(released, "metrics", lambda assets: metrics(going(others)))
    assert set(verdicts("L-fig3", World(None)).values()) == {"did not hold"}


def test_a_layer_without_labels(monkeypatch):
    def values(model, metric, layers, number):
        return np.where((layers >= 2) & (layers <= 4), 1.0, 0.0) + 0.01 * (layers == 3)

    monkeypatch.setattr(released, "metrics", lambda assets: metrics(values, 6))
    monkeypatch.setattr(released, "scores", lambda assets: scores(5.0))
    assert verdicts("L-appE", World(None)) == {"dime": "held"}

    def misleading(model, metric, layers, number):
        good = np.where((layers >= 2) & (layers <= 4), 1.0, 0.0) + 0.01 * (layers == 3)
        return -good if model == "Pythia-410m" else good

    rows = scores(5.0).scores
    high_last = rows["model"].eq("Pythia-410m") & rows["layer"].eq(6)
    rows.loc[high_last, "score"] += 0.03
    monkeypatch.setattr(released, "scores", lambda assets: Evaluation(rows))
    monkeypatch.setattr(released, "metrics", lambda assets: metrics(misleading, 6))
    assert verdicts("L-appE", World(None)) == {"dime": "did not hold"}


def over_training(sign):
    """Return metrics by step in which the middle moves most, and down to the lowest.

    With sign −1 it moves least, up, and is the highest.
    """
    speeds = {1: (1.0, -3.0, 1.0), -1: (1.0, 0.3, 1.0)}[sign]
    late_speed_of_the_first = {1: 0.1, -1: 3.0}[sign]
    steps = 1, 16, 256, 4000, 16000, 64000, 128000
    rows = []
    for metric, variant in curves.OVER_TRAINING.items():
        values = np.r_[30.0, np.repeat((30.0, 30.0 if sign > 0 else 50.0, 30.0), 4)]
        values += 1e-3 * len(metric) * np.arange(13)
        for step in steps:
            revisions = [(f"step{step}", "wikitext")]
            if step == steps[-1]:
                revisions += [
                    ("main", dataset) for dataset in ("wikitext", "mteb/a", "mteb/b")
                ]
            for number, (revision, dataset) in enumerate(revisions):
                names = ("Pythia-410m", revision, dataset, metric, variant)
                rows += [
                    (*names, layer, value + 0.01 * number * layer)
                    for layer, value in enumerate(values)
                ]
            moved = np.repeat(speeds, 4)
            if step >= curves.LATE:
                moved[:4] *= late_speed_of_the_first
            values = values + np.r_[0.0, moved]
    return pd.DataFrame(rows, columns=COLUMNS).assign(site=None, pooling=None)


def entropies(sites, texts=30):
    """Return entropies of texts at layers 0 … 12 of each site, with a little noise."""
    draws = np.random.default_rng(0)
    frames = {
        site: pd.DataFrame(
            np.broadcast_to(curve, (texts, 13)) + draws.normal(0, 1e-3, (texts, 13))
        )
        for site, curve in sites.items()
    }
    return pd.concat(frames, axis=1)


def dip(depth):
    """Return entropies of layers 0 … 12 that fall by a depth in the middle."""
    return 3.0 - depth * np.sin(np.pi * np.arange(13) / 12)


@pytest.mark.parametrize(
    "branch, sums, word",
    [(0.1, 1.0, "held"), (2.0, 1.0, "did not hold"), (0.1, 0.0, "not applicable")],
)
def test_a_valley_that_comes_with_residual_additions(monkeypatch, branch, sums, word):
    def inside(assets, *options):
        after = "attn_residual", "raw"
        sites = {
            site: dip(sums if site in after else branch)
            for site in (*after, "attn", "mlp")
        }
        found = entropies(sites)
        return found.drop(
            columns=[(site, 0) for site in ("attn", "attn_residual", "mlp")]
        )

    monkeypatch.setattr(prompts, "entropy", inside)
    assert set(verdicts("L-fig15", World(None)).values()) == {word}


@pytest.mark.parametrize(
    "raw, others, words",
    [
        (1.0, 1.0, ("held", "held")),
        (1.0, -1.0, ("held", "did not hold")),
        (-1.0, -1.0, ("not applicable", "not applicable")),
    ],
)
def test_a_valley_under_each_scaling_of_rows(monkeypatch, raw, others, words):
    def scaled(assets, *options):
        return entropies(
            {"raw": dip(raw if options == prompts.ROWS["raw"] else others)}
        )

    monkeypatch.setattr(prompts, "entropy", scaled)
    found = verdicts("L-rows", World(None))
    assert (found["raw"], found["unit"], found["centred"]) == (
        words[0],
        words[1],
        words[1],
    )


@pytest.mark.parametrize("sign, word", [(1, "held"), (-1, "did not hold")])
def test_changed_and_longer_prompts(monkeypatch, sign, word):
    layers = np.arange(13)
    early, middle = (layers > 0) & (layers < 5), (layers > 4) & (layers < 9)

    def read(assets, *options, setup=None):
        ((name, value),) = options or (("plain", 0),)
        curve = 3.0 + 0 * layers
        if name == "repeat_tokens":
            curve = curve - sign * 0.2 * middle
        if name == "random_tokens":
            curve = curve + sign * 0.2 * early
        if name == "max_length":
            curve = curve + (
                np.log(np.log(value)) if sign > 0 else -0.1 * np.log(value)
            )
        return entropies({"raw": curve})

    monkeypatch.setattr(prompts, "entropy", read)
    found = verdicts("L-fig6", World(None))
    falling = found.pop("falling")
    assert falling == "held" or sign < 0
    assert set(found.values()) == {word}


def test_increments_that_grow_with_the_length(monkeypatch):
    def read(assets, *options, setup=None):
        length = dict(options).get("max_length", 64)
        return entropies({"raw": 3.0 + (length / 100) ** 2})

    monkeypatch.setattr(prompts, "entropy", read)
    assert verdicts("L-fig6", World(None))["falling"] == "did not hold"


@pytest.mark.parametrize("sign, word", [(1, "held"), (-1, "did not hold")])
def test_entropy_along_the_sequence_after_tuning(monkeypatch, sign, word):
    base, tuned = prompts.REASONING
    spread = np.random.default_rng(1).normal(0, 0.1, (30, 1))

    def read(assets, *options, setup):
        is_tuned = setup is tuned
        found = entropies({"raw": 3.0 + 0 * np.arange(13)}, texts=30)
        width = 1 - sign * 0.5 * is_tuned
        return found + sign * 0.5 * is_tuned + width * spread

    monkeypatch.setattr(prompts, "entropy", read)
    found = verdicts("L-fig5", World(None, (base, tuned)))
    assert found == {"higher": word, "steadier": word}


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
