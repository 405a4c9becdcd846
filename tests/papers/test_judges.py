"""Each judge on data in which its claim is true by construction, and on data in which it is false."""

import numpy as np
import pandas as pd
import pytest
from papers.worlds import DEPTH, World, rising

from layerscope.papers import catalogue, released, vision
from layerscope.papers.recipe import SCALES
from layerscope.papers.verdicts import decide
from layerscope.scores import Evaluation

GOOD = {
    "layer_accuracy": rising(0.9, 0.97), "saturated": rising(0.5, 1.0), "cosine_similarity": rising(0.7, 1.0),
    "nc1": rising(1.0, 0.1), "saturation_layer": 3.0, "effective_depth": 5.0,
}  # fmt: skip
BAD = {
    "layer_accuracy": rising(0.2, 0.97), "saturated": rising(0.0, 1.0, 3), "cosine_similarity": rising(0.1, 1.0),
    "nc1": rising(50.0, 0.1), "saturation_layer": 9.0, "effective_depth": 12.0,
}  # fmt: skip


def pairs(curve):
    """Return similarities of every two layers whose last column is a curve."""
    table = np.ones((DEPTH + 1, DEPTH + 1))
    table[1:, -1] = curve
    return table


def verdicts(name, assets):
    recipe = catalogue.recipes()[name]
    found = recipe.judge(assets)
    assert set(found.intervals) == {claim.name for claim in recipe.claims}
    return {claim.name: decide(claim, found.intervals[claim.name]).word for claim in recipe.claims}


def trained(good, bad=BAD):
    """Return a world in which a training for which `good` is true is aligned, and every other one is not."""
    return World(lambda model: dict(GOOD if good(model) else bad))


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    monkeypatch.setattr(vision, "open_run", lambda made: made.opened())


def aligned(model):
    return model.objective == "aligned"


@pytest.mark.parametrize("name", ["T-fig6", "T-fig16"])
def test_aligned_training_against_standard(name):
    assert set(verdicts(name, trained(aligned)).values()) == {"held"}
    assert set(verdicts(name, trained(lambda model: not aligned(model))).values()) == {"did not hold"}
    assert set(verdicts(name, World(lambda model: GOOD)).values()) == {"not decided"}


def test_layers_of_aligned_training_lie_closer_to_the_last():
    def about(good):
        return lambda model: {
            **(GOOD if good(model) else BAD),
            "cosine_similarity": pairs((GOOD if good(model) else BAD)["cosine_similarity"]),
        }

    assert set(verdicts("T-fig1", World(about(aligned))).values()) == {"held"}
    assert set(verdicts("T-fig1", World(about(lambda model: not aligned(model)))).values()) == {"did not hold"}


def test_cosine_follows_cka_and_accuracy():
    def about(curve):
        return lambda model: {**GOOD, "cosine_similarity": pairs(curve), "cka": pairs(rising(0.2, 1.0))}

    assert set(verdicts("T-fig2", World(about(rising(0.1, 1.0)))).values()) == {"held"}
    falling = verdicts("T-fig2", World(about(-rising(0.1, 1.0))))
    assert set(falling.values()) == {"did not hold"}
    assert verdicts("T-cosacc", World(about(rising(0.1, 1.0)))) == {"spearman": "held"}
    assert verdicts("T-cosacc", World(about(rising(1.0, 0.1)))) == {"spearman": "did not hold"}


def test_the_shared_classifier_is_on_par():
    better = {**GOOD, "cosine_similarity": rising(0.8, 1.0)}
    on_par = World(lambda model: better if aligned(model) else GOOD)
    assert set(verdicts("T-fig4", on_par).values()) == {"held"}
    worse = {**BAD, "layer_accuracy": rising(0.2, 0.9)}
    assert set(verdicts("T-fig4", World(lambda model: worse if aligned(model) else GOOD)).values()) == {"did not hold"}


def test_effective_depth_and_separate_models():
    def separate(accuracy):
        def about(model):
            own = {**BAD, "layer_accuracy": np.full(DEPTH, accuracy)}
            return own if model.depth else GOOD if aligned(model) else BAD

        return World(about)

    assert set(verdicts("T-fig5", separate(0.9)).values()) == {"held"}
    zigzag = {**BAD, "layer_accuracy": rising(0.2, 0.9) - 0.1 * (np.arange(DEPTH) % 2), "effective_depth": 12.0}
    lost = World(lambda model: {**GOOD, "effective_depth": 4.0} if not aligned(model) else zigzag)
    assert set(verdicts("T-fig5", lost).values()) == {"did not hold"}


def test_a_regulariser_against_the_aligned_loss():
    little = {**BAD, "layer_accuracy": rising(0.3, 0.97)}
    helps = {"standard": BAD, "cosine": little, "cka": little, "aligned": GOOD}
    assert set(verdicts("T-fig14", World(lambda model: helps[model.objective])).values()) == {"held"}
    assert set(verdicts("T-ckareg", World(lambda model: helps[model.objective])).values()) == {"held"}
    turned = {"standard": BAD, "cosine": GOOD, "cka": GOOD, "aligned": little}
    assert set(verdicts("T-fig14", World(lambda model: turned[model.objective])).values()) == {"did not hold"}
    best = {"cosine": BAD, "aligned": little, "cka": GOOD}
    assert set(verdicts("T-ckareg", World(lambda model: best[model.objective])).values()) == {"did not hold"}


def test_what_is_changed_about_aligned_training():
    worse = {**GOOD, "layer_accuracy": rising(0.9, 0.9)}
    uniform = World(lambda model: worse if ("weights", "uniform") in model.options else GOOD)
    assert verdicts("T-fig15", uniform) == {"last": "held"}
    assert verdicts("T-fig15", World(lambda m: GOOD if ("weights", "uniform") in m.options else worse)) == {
        "last": "did not hold"
    }
    always = World(lambda model: worse if ("schedule", "always") in model.options else GOOD)
    assert verdicts("T-alt", always) == {"last": "held"}
    assert verdicts("T-alt", World(lambda m: GOOD if ("schedule", "always") in m.options else worse)) == {
        "last": "did not hold"
    }
    assert verdicts("T-kl", trained(lambda model: True)) == {"distilled": "held"}
    assert verdicts("T-kl", World(lambda model: BAD if aligned(model) else GOOD)) == {"distilled": "did not hold"}


def scores(middle):
    """Return scores of four models on 8 tasks, the middle layers better than the last by some points."""
    draws = np.random.default_rng(0)
    rows = [
        {"model": model, "revision": "main", "layer": layer, "task": f"task {task}",
         "score": 0.4 + middle / 100 * (2 <= layer <= 4 if middle > 0 else layer < 6) + draws.normal(0, 1e-3)}
        for model in ("Pythia-14m", "Pythia-70m", "Pythia-160m", "Pythia-410m")
        for layer in range(7)
        for task in range(8)
    ]  # fmt: skip
    return Evaluation(pd.DataFrame(rows))


@pytest.mark.parametrize(("gain", "word"), [(5.0, "held"), (-5.0, "did not hold")])
def test_middle_layers_against_the_last(monkeypatch, gain, word):
    monkeypatch.setattr(released, "scores", lambda assets: scores(gain))
    assert set(verdicts("L-fig1", World(None)).values()) == {word}


def metrics(values, depth=12):
    """Return metrics by layer: `values(model, metric, layers, dataset)` for each."""
    models = dict.fromkeys((*released.PARAMETERS, "bert-base", "bert-large", "bert-huge"), depth)
    kinds = [("prompt_entropy", "maxEntropy"), ("curvature", "raw"), ("infonce", "raw"), ("dime", "raw"),
             ("lidar", "maxEntropy"), ("dataset_entropy", "raw")]  # fmt: skip
    rows = [
        {"model": model, "revision": "main", "dataset": dataset, "metric": metric, "variant": variant,
         "site": None, "pooling": None, "layer": layer, "value": value}
        for model, depth in models.items()
        for number, dataset in enumerate(("wikitext", "mteb/a", "mteb/b", "mteb/c"))
        for metric, variant in kinds
        for layer, value in enumerate(values(model, metric, np.arange(depth + 1), number))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def valley(deep):
    def values(model, metric, layers, number):
        depth = 0.1 if model.startswith("bert") else deep
        return 0.8 + 0.001 * number - depth * np.sin(np.pi * layers / layers[-1])

    return values


def test_a_valley_of_entropy(monkeypatch):
    monkeypatch.setattr(released, "metrics", lambda assets: metrics(valley(0.5)))
    found = verdicts("L-fig2", World(None))
    assert {word for name, word in found.items() if name != "bidirectional"} == {"held"}
    monkeypatch.setattr(released, "metrics", lambda assets: metrics(valley(-0.5)))
    found = verdicts("L-fig2", World(None))
    assert {word for name, word in found.items() if name != "bidirectional"} == {"did not hold"}


def test_larger_models(monkeypatch):
    def by_size(sign):
        def values(model, metric, layers, number):
            size = np.log10(released.PARAMETERS.get(model, 1e8))
            return np.full(len(layers), sign * size) + 1e-3 * np.sin(size * 50)

        return values

    monkeypatch.setattr(released, "metrics", lambda assets: metrics(by_size(-1)))
    assert set(verdicts("L-fig12", World(None)).values()) == {"held"}
    monkeypatch.setattr(released, "metrics", lambda assets: metrics(by_size(1)))
    assert set(verdicts("L-fig12", World(None)).values()) == {"did not hold"}


def test_which_metrics_go_with_scores(monkeypatch):
    strong = ("curvature", "dime", "infonce")

    def going(with_scores):
        def values(model, metric, layers, number):
            noise = np.random.default_rng(len(metric) + 100 * number).normal(size=len(layers))
            return np.where((layers >= 2) & (layers <= 4), 1.0, 0.0) + (0.01 if metric in with_scores else 100) * noise

        return values

    monkeypatch.setattr(released, "scores", lambda assets: scores(5.0))
    monkeypatch.setattr(released, "metrics", lambda assets: metrics(going(strong)))
    assert verdicts("L-fig3", World(None)) == {"lead": "held"}
    others = ("prompt_entropy", "dataset_entropy", "lidar")
    monkeypatch.setattr(released, "metrics", lambda assets: metrics(going(others)))
    assert verdicts("L-fig3", World(None)) == {"lead": "did not hold"}


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


def test_what_training_changes(monkeypatch):
    def by_step(middle, early):
        rows = []
        for metric, variant in (("prompt_entropy", "maxEntropy"), ("lidar", "maxEntropy"), ("dime", "maxEntropy"),
                                ("infonce", "raw")):  # fmt: skip
            for i, step in enumerate((1, 16, 256, 4000, 16000, 64000, 128000)):
                for layer in range(13):
                    third = (layer - 1) // 4
                    late = i > 4
                    speed = (3.0 if middle else 0.3) if third == 1 else 1.0
                    speed *= (0.1 if early else 3.0) if late and third == 0 else 1.0
                    value = rows[-13]["value"] + speed if i else 0.0
                    rows.append(
                        {"model": "Pythia-410m", "revision": f"step{step}", "dataset": "wikitext", "metric": metric,
                         "variant": variant, "site": None, "pooling": None, "layer": layer,
                         "value": value + 1e-3 * len(metric) * layer}
                    )  # fmt: skip
        return pd.DataFrame(rows)

    monkeypatch.setattr(released, "metrics", lambda assets: by_step(True, True))
    assert set(verdicts("L-fig4", World(None)).values()) == {"held"}
    monkeypatch.setattr(released, "metrics", lambda assets: by_step(False, False))
    assert set(verdicts("L-fig4", World(None)).values()) == {"did not hold"}


def test_the_printed_table(monkeypatch):
    assert verdicts("T-tab1", World(None)) == {"totals": "held", "savings": "held", "columns": "did not hold"}


@pytest.mark.parametrize("name", list(catalogue.recipes()))
def test_every_recipe_says_what_it_lacks_at_the_scales_it_does_not_run_at(name):
    recipe = catalogue.recipes()[name]
    assert set(recipe.scales) | set(recipe.lacks) == set(SCALES)
    assert not set(recipe.scales) & set(recipe.lacks)
    assert len({claim.name for claim in recipe.claims}) == len(recipe.claims)
    for claim in recipe.claims:
        assert claim.sentence.endswith(".")
        assert not claim.statistic.endswith(".")
