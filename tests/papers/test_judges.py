"""Each judge on data in which its claim is true by construction, and on data in which it is false."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from papers.worlds import DEPTH, World, rising, verdicts

from layerscope_papers import catalogue, vision
from layerscope_papers.reproducing import SCALES
from layerscope_papers.tracing import perceptrons, transfer

GOOD = {
    "layer_accuracy": rising(0.9, 0.97),
    "saturated": rising(0.5, 1.0),
    "cosine_similarity": rising(0.7, 1.0),
    "nc1": rising(1.0, 0.1),
    "saturation_layer": 3.0,
    "effective_depth": 5.0,
}
BAD = {
    "layer_accuracy": rising(0.2, 0.97),
    "saturated": rising(0.0, 1.0, 3),
    "cosine_similarity": rising(0.1, 1.0),
    "nc1": rising(50.0, 0.1),
    "saturation_layer": 9.0,
    "effective_depth": 12.0,
}


def pairs(curve):
    """Return similarities of every two layers whose last column is a curve."""
    table = np.ones((DEPTH + 1, DEPTH + 1))
    table[1:, -1] = curve
    return table


def trained(good, bad=BAD):
    """Return a world in which a training for which `good` is true is aligned, and every other one is not."""
    return World(lambda model: dict(GOOD if good(model) else bad))


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    for module, name in (
        (vision, "open_run"),
        (vision, "open_exit_report"),
        (perceptrons, "open_run"),
        (transfer, "open_run"),
    ):
        monkeypatch.setattr(module, name, lambda made: made.opened())


def aligned(model):
    return model.objective == "aligned"


@pytest.mark.parametrize("name", ["T-fig6", "T-fig16"])
def test_aligned_training_against_standard(name):
    assert set(verdicts(name, trained(aligned)).values()) == {"held"}
    assert set(verdicts(name, trained(lambda model: not aligned(model))).values()) == {
        "did not hold"
    }
    assert set(verdicts(name, World(lambda model: GOOD)).values()) == {"not decided"}


def test_layers_of_aligned_training_lie_closer_to_the_last():
    def about(good):
        return lambda model: {
            **(GOOD if good(model) else BAD),
            "cosine_similarity": pairs((GOOD if good(model) else BAD)["cosine_similarity"]),
        }

    assert set(verdicts("T-fig1", World(about(aligned))).values()) == {"held"}
    assert set(verdicts("T-fig1", World(about(lambda model: not aligned(model)))).values()) == {
        "did not hold"
    }


def test_cosine_follows_cka_and_accuracy():
    def about(curve):
        return lambda model: {
            **GOOD,
            "cosine_similarity": pairs(curve),
            "cka": pairs(rising(0.2, 1.0)),
        }

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
    assert set(
        verdicts("T-fig4", World(lambda model: worse if aligned(model) else GOOD)).values()
    ) == {"did not hold"}


def test_effective_depth_and_separate_models():
    def separate(accuracy):
        def about(model):
            own = {**BAD, "layer_accuracy": np.full(DEPTH, accuracy)}
            return own if model.depth else GOOD if aligned(model) else BAD

        return World(about)

    assert set(verdicts("T-fig5", separate(0.9)).values()) == {"held"}
    zigzag = {
        **BAD,
        "layer_accuracy": rising(0.2, 0.9) - 0.1 * (np.arange(DEPTH) % 2),
        "effective_depth": 12.0,
    }
    lost = World(lambda model: {**GOOD, "effective_depth": 4.0} if not aligned(model) else zigzag)
    assert set(verdicts("T-fig5", lost).values()) == {"did not hold"}


def test_a_regulariser_against_the_aligned_loss():
    little = {**BAD, "layer_accuracy": rising(0.3, 0.97)}
    helps = {"standard": BAD, "cosine": little, "cka": little, "aligned": GOOD}
    assert set(verdicts("T-fig14", World(lambda model: helps[model.objective])).values()) == {
        "held"
    }
    assert set(verdicts("T-ckareg", World(lambda model: helps[model.objective])).values()) == {
        "held"
    }
    turned = {"standard": BAD, "cosine": GOOD, "cka": GOOD, "aligned": little}
    assert set(verdicts("T-fig14", World(lambda model: turned[model.objective])).values()) == {
        "did not hold"
    }
    best = {"cosine": BAD, "aligned": little, "cka": GOOD}
    assert set(verdicts("T-ckareg", World(lambda model: best[model.objective])).values()) == {
        "did not hold"
    }


def test_what_is_changed_about_aligned_training():
    worse = {**GOOD, "layer_accuracy": rising(0.9, 0.9)}
    uniform = World(lambda model: worse if ("weights", "uniform") in model.options else GOOD)
    assert verdicts("T-fig15", uniform) == {"last": "held"}
    assert verdicts(
        "T-fig15", World(lambda m: GOOD if ("weights", "uniform") in m.options else worse)
    ) == {"last": "did not hold"}
    always = World(lambda model: worse if ("schedule", "always") in model.options else GOOD)
    assert verdicts("T-alt", always) == {"last": "held"}
    assert verdicts(
        "T-alt", World(lambda m: GOOD if ("schedule", "always") in m.options else worse)
    ) == {"last": "did not hold"}
    assert verdicts("T-kl", trained(lambda model: True)) == {"distilled": "held"}
    assert verdicts("T-kl", World(lambda model: BAD if aligned(model) else GOOD)) == {
        "distilled": "did not hold"
    }


def test_more_alike_trainings_saturate_earlier():
    order = ["standard", "cosine", "cka", "aligned"]

    def about(sign):
        def curves(model):
            at = order.index(model.objective) + 0.2 * len(model.options)
            return {
                **GOOD,
                "cosine_similarity": rising(0.1 * at, 1.0),
                "saturated": rising(0.3 + sign * 0.05 * at, 1),
            }

        return World(curves)

    assert verdicts("T-fig3", about(1)) == {"spearman": "held"}
    assert verdicts("T-fig3", about(-1)) == {"spearman": "did not hold"}


def states(*, straight, norms=1.0):
    """Return states `[50, 13, 8]` that move along a straight line to the last layer, or far away and back to it."""
    start, end, away = np.random.default_rng(0).normal(size=(3, 50, 1, 8))
    x = np.linspace(0, 1, DEPTH + 1)[:, None]
    found = (1 - x) * (0.4 * end + 0.1 * start) + x * end
    found = (
        found if straight else found - 5 * np.sin(np.pi * x) * end + np.sin(2 * np.pi * x) * away
    )
    return found * norms ** np.arange(DEPTH + 1)[:, None]


def test_states_on_a_straight_line():
    found = verdicts("T-thm1", World(lambda model: {**GOOD, "states": states(straight=True)}))
    assert set(found.values()) == {"held"}
    found = verdicts("T-thm1", World(lambda model: {**GOOD, "states": states(straight=False)}))
    assert found.pop("derivative") == "held" and set(found.values()) == {"did not hold"}


def test_the_probability_of_the_label():
    good = {"label_probability": rising(0.2, 0.9), "states": states(straight=True)}
    assert set(verdicts("T-thm2", World(lambda model: {**GOOD, **good})).values()) == {"held"}
    zigzag = rising(0.2, 0.9) - 0.2 * (np.arange(DEPTH) % 2)
    bad = {
        "label_probability": zigzag,
        "states": states(straight=True),
        "nc1": rising(1.0, 50.0),
    }
    assert set(verdicts("T-thm2", World(lambda model: {**GOOD, **bad})).values()) == {
        "did not hold"
    }


def test_samples_one_by_one():
    assert set(
        verdicts("T-fig10", World(lambda model: {**GOOD, "states": states(straight=True)})).values()
    ) == {"held"}
    away = states(straight=False)
    assert set(verdicts("T-fig10", World(lambda model: {**GOOD, "states": away})).values()) == {
        "did not hold"
    }


def test_neighbouring_layers():
    assert set(
        verdicts("T-fig11", World(lambda model: {**GOOD, "states": states(straight=True)})).values()
    ) == {"held"}
    unlike = np.random.default_rng(0).normal(size=(50, DEPTH + 1, 8))
    found = verdicts("T-fig11", World(lambda model: {**GOOD, "states": unlike}))
    assert set(found.values()) == {"did not hold"}


def exits(speed, lost, last):
    """Return a report whose exits, and cuts at half depth, are so fast and lose so many points of accuracy."""
    layers = np.arange(1, DEPTH + 1)
    half = (layers == DEPTH // 2).astype(float)
    share = np.where(layers == DEPTH, last, (1 - last) / (DEPTH - 1))
    measured = np.where(layers == DEPTH, 1.0, speed)
    return SimpleNamespace(
        depth=DEPTH,
        plain_accuracy=0.9,
        curve=pd.DataFrame({"accuracy": [0.9, 0.9 - lost / 100], "exit_speedup": [1.0, speed]}),
        layers=pd.DataFrame({"layer": layers, "share": share}),
        depths=pd.DataFrame(
            {
                "layer": layers,
                "accuracy": 0.9 - lost / 100 * half,
                "measured": measured,
                "parameters": np.where(layers == DEPTH, 10**6, 10**6 / speed).astype(int),
            }
        ),
    )


def test_perceptrons_with_and_without_residual_connections():
    close, far = rising(0.5, 1.0), np.where(np.arange(DEPTH) == DEPTH - 1, 1.0, 0.1)

    def about(residual, plain):
        def curves(model):
            cosine, cka = residual if model.residual else plain
            return {"cosine_similarity": pairs(cosine), "cka": pairs(cka), "layer_accuracy": cosine}

        return World(curves, perceptrons.Shape())

    assert set(verdicts("T-fig12", about((close, close), (far, close))).values()) == {"held"}
    assert set(verdicts("T-fig12", about((close, close[::-1]), (close, far))).values()) == {
        "did not hold"
    }


def test_changed_images_and_other_tasks():
    read = {**GOOD, "linear_probe": GOOD["layer_accuracy"]}
    unread = {**BAD, "layer_accuracy": rising(0.2, 0.9), "linear_probe": rising(0.2, 0.9)}
    good = World(lambda model: read if aligned(model) else unread)
    assert set(verdicts("T-fig17", good).values()) == {"held"}
    bad = World(lambda model: unread if aligned(model) else read)
    assert set(verdicts("T-fig17", bad).values()) == {"did not hold"}


def test_images_are_changed_alike_each_time():
    _, whole = vision.images(vision.SMALL, None)
    corpus = whole.take(range(8))
    before = np.stack([np.asarray(image, float) for image in corpus.samples])
    noisy, faded, moved = (
        np.stack([np.asarray(image, float) for image in transfer.changed(corpus, change).samples])
        for change in transfer.SHIFTS.values()
    )
    assert 15 < np.abs(noisy - before).mean() < 45 and (noisy[..., 0] == noisy[..., 1]).all()
    assert faded.std() == pytest.approx(before.std() / 2, rel=0.05)
    assert (moved[:, :, 1:] == before[:, :, :-1]).all() and not moved[:, :, 0].any()
    parity, turned = (task(whole) for task in transfer.TASKS.values())
    assert parity.labels == tuple(label % 2 for label in whole.labels)
    assert (
        turned.labels[:5] == (0, 1, 2, 3, 0)
        and (np.rot90(before[5]) == np.asarray(turned.samples[5])).all()
    )


def test_exits_by_confidence():
    fast, slow = {"exits": exits(2.0, 1.0, 0.1)}, {"exits": exits(1.1, 1.0, 0.8)}

    def world(aligned_is_fast):
        def about(model):
            if model.objective == "classifiers":
                return fast
            return fast if aligned(model) == aligned_is_fast else slow

        return World(about)

    assert set(verdicts("T-fig7", world(True)).values()) == {"held"}
    assert set(verdicts("T-fig7", world(False)).values()) == {"did not hold"}


def test_one_checkpoint_for_all_devices():
    assert set(
        verdicts("T-fig13", World(lambda model: {"exits": exits(1.9, 0.0, 0.1)})).values()
    ) == {"held"}
    found = verdicts("T-fig13", World(lambda model: {"exits": exits(1.1, 3.0, 0.1)}))
    assert set(found.values()) == {"did not hold"}


@pytest.mark.parametrize("name", list(catalogue.recipes()))
def test_every_recipe_says_what_it_lacks_at_the_scales_it_does_not_run_at(name):
    recipe = catalogue.recipes()[name]
    assert set(recipe.scales) | set(recipe.lacks) == set(SCALES)
    assert not set(recipe.scales) & set(recipe.lacks)
    assert len({claim.name for claim in recipe.claims}) == len(recipe.claims)
    for claim in recipe.claims:
        assert claim.sentence.endswith(".")
        assert not claim.statistic.endswith(".")
