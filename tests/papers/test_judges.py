"""Each judge on data in which its claim is true by construction, and on data in which it is false."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from papers.worlds import DEPTH, LAYERS, Made, World, rising, verdicts

from layerscope_papers import bench, catalogue, vision
from layerscope_papers.language import SMALL
from layerscope_papers.options import SCALES
from layerscope_papers.tracing import (
    generated,
    glue,
    perceptrons,
    similarity,
    transfer,
)

GOOD = {
    "layer_accuracy": rising(0.9, 0.97),
    "saturated": rising(0.5, 1.0),
    "cosine_similarity": rising(0.7, 1.0),
    "nc1": rising(1.0, 0.1),
    "saturation_layer": 3.0,
    "training_accuracy": np.where(LAYERS < 5, 0.5, 1.0),
    "by_step": np.array([0.1, 0.9, 0.95, 0.97]),
}
BAD = {
    "layer_accuracy": rising(0.2, 0.97),
    "saturated": rising(0.0, 1.0, 3),
    "cosine_similarity": rising(0.1, 1.0),
    "nc1": rising(50.0, 0.1),
    "saturation_layer": 9.0,
    "training_accuracy": np.where(LAYERS < DEPTH, 0.2, 1.0),
    "by_step": np.array([0.1, 0.2, 0.5, 0.97]),
}


def pairs(curve):
    """Return similarities of every two layers: a curve to the last layer, and the same curve to each next layer."""
    table = np.ones((DEPTH + 1, DEPTH + 1))
    table[range(1, DEPTH), range(2, DEPTH + 1)] = curve[:-1]
    table[1:, -1] = curve
    return table


def trained(good, metrics=GOOD, others=BAD, settings=vision.SMALL):
    """Return a world in which the trainings for which `good` is true have some metrics, and every other one others."""
    return World(lambda model: dict(metrics if good(model) else others), settings)


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    for module in (bench, generated, perceptrons, glue, transfer):
        monkeypatch.setattr(module, "open_run", Made.opened)
    for name in ("open_exit_report", "open_reading"):
        monkeypatch.setattr(bench, name, Made.opened)


def aligned(model):
    return model.objective == "aligned"


def standard(model):
    return not aligned(model)


def has(option, value):
    """Return whether a training has an option, as a function of it."""
    return lambda model: (option, value) in model.options


def on_pairs(**curves):
    """Return a world in which every training has these similarities to the last layer."""
    similarities = {name: pairs(curve) for name, curve in curves.items()}
    return World(lambda model: {**GOOD, **similarities})


def closer(good):
    """Return a world in which the layers of the trainings for which `good` is true lie closer to the last."""

    def about(model):
        metrics = GOOD if good(model) else BAD
        return {**metrics, "cosine_similarity": pairs(metrics["cosine_similarity"])}

    return World(about)


def by_objective(**metrics):
    return World(lambda model: metrics[model.objective])


def separate(accuracy, shared=GOOD, standard=BAD):
    """Return a world of models that are trained for one depth each, beside aligned ones."""

    def about(model):
        if model.depth:
            return {**BAD, "training_accuracy": np.full(DEPTH, accuracy)}
        return shared if aligned(model) else standard

    return World(about)


def on_data(sign):
    """Return a world in which layers are closer to the last on one of two data sets, and saturate earlier, or later."""

    def about(model):
        likeness = float(model.setup.data == "cifar10")
        saturated = rising(0.3 + sign * 0.2 * likeness, 1)
        return {
            **GOOD,
            "cosine_similarity": rising(0.3 + 0.2 * likeness, 1),
            "saturated": saturated,
        }

    return World(about)


def on_states(states, **others):
    return World(lambda model: {**GOOD, "states": states, **others})


def residual(with_additions, without):
    """Return a world of perceptrons: cosine and CKA to the last layer with residual additions, and without."""

    def about(model):
        cosine, cka = with_additions if model.residual else without
        return {
            "cosine_similarity": pairs(cosine),
            "cka": pairs(cka),
            "layer_accuracy": cosine,
        }

    return World(about, perceptrons.Shape())


def exiting(aligned_is_fast):
    fast, slow = {"exits": exits(2.0, 1.0, 0.1)}, {"exits": exits(1.1, 1.0, 0.8)}

    def about(model):
        is_fast = model.objective == "classifiers" or aligned(model) == aligned_is_fast
        return fast if is_fast else slow

    return World(about)


def states(*, straight, norms=1.0):
    """Return states `[50, 13, 8]` that move along a straight line to the last layer, or far away and back to it."""
    start, end, away = np.random.default_rng(0).normal(size=(3, 50, 1, 8))
    x = np.linspace(0, 1, DEPTH + 1)[:, None]
    found = (1 - x) * (0.4 * end + 0.1 * start) + x * end
    if not straight:
        found += np.sin(2 * np.pi * x) * away - 5 * np.sin(np.pi * x) * end
    return found * norms ** np.arange(DEPTH + 1)[:, None]


def exits(speed, lost, last):
    """Return a report whose exits are so fast and lose so many points of accuracy; cuts lose more the shallower."""
    layers = np.arange(1, DEPTH + 1)
    in_first_half = (layers <= DEPTH // 2) / (DEPTH // 2)
    share = np.where(layers == DEPTH, last, (1 - last) * in_first_half)
    measured = np.where(layers == DEPTH, 1.0, speed)
    return SimpleNamespace(
        depth=DEPTH,
        plain_accuracy=0.9,
        curve=pd.DataFrame(
            {"accuracy": [0.9, 0.9 - lost / 100], "exit_speedup": [1.0, speed]}
        ),
        layers=pd.DataFrame({"layer": layers, "share": share}),
        depths=pd.DataFrame(
            {
                "layer": layers,
                "accuracy": 0.9 - lost / 100 * (1 - layers / DEPTH),
                "measured": measured,
                "parameters": np.where(layers == DEPTH, 10**6, 10**6 / speed).astype(
                    int
                ),
            }
        ),
    )


UP = rising(0.1, 1.0)
BETTER = {**GOOD, "cosine_similarity": rising(0.8, 1.0)}
FLAT = {**GOOD, "layer_accuracy": rising(0.95, 0.95)}
POOR = {**BAD, "layer_accuracy": rising(0.2, 0.9)}
LITTLE = {**BAD, "layer_accuracy": rising(0.3, 0.97)}
ZIGZAG = rising(0.2, 0.9) - 0.1 * (np.arange(DEPTH) % 2)
UNSTEADY = {**BAD, "layer_accuracy": ZIGZAG}
CLOSE, FAR = rising(0.5, 1.0), np.where(np.arange(DEPTH) == DEPTH - 1, 1.0, 0.1)
LINE = states(straight=True)
NOISE = np.random.default_rng(0).normal(size=(50, DEPTH + 1, 8))
# a world in which every claim of a recipe is true, and one in which every claim is false
JUDGED = {
    "T-fig1": (closer(aligned), closer(standard)),
    "T-fig2": (
        on_pairs(cosine_similarity=UP, cka=CLOSE),
        on_pairs(cosine_similarity=-UP, cka=CLOSE),
    ),
    "T-fig3": (on_data(1), on_data(-1)),
    "T-fig4": (trained(aligned, BETTER, GOOD), trained(aligned, {**BAD, **POOR}, GOOD)),
    "T-fig5": (separate(0.9), separate(0.99, UNSTEADY, GOOD)),
    "T-fig6": (trained(aligned), trained(standard)),
    "T-fig6-text": (
        trained(aligned, settings=SMALL),
        trained(standard, settings=SMALL),
    ),
    "T-fig7": (exiting(True), exiting(False)),
    "T-fig8": (
        World(lambda model: GOOD if aligned(model) else POOR, glue.SMALL),
        World(lambda model: POOR if aligned(model) else GOOD, glue.SMALL),
    ),
    "T-fig10": (on_states(LINE), on_states(states(straight=False))),
    "T-fig11": (on_states(LINE), on_states(NOISE)),
    "T-fig12": (
        residual((CLOSE, CLOSE), (FAR, CLOSE)),
        residual((CLOSE, CLOSE[::-1]), (CLOSE, FAR)),
    ),
    "T-fig13": (
        World(lambda model: {"exits": exits(1.9, 1.0, 0.1)}),
        World(lambda model: {"exits": exits(1.9, -1.0, 0.1)}),
    ),
    "T-fig14": (
        by_objective(standard=BAD, cosine=LITTLE, cka=LITTLE, aligned=GOOD),
        by_objective(standard=BAD, cosine=GOOD, cka=GOOD, aligned=LITTLE),
    ),
    "T-fig15": (
        trained(has("weights", "uniform"), FLAT, GOOD),
        trained(has("weights", "uniform"), GOOD, FLAT),
    ),
    "T-fig16": (trained(aligned), trained(standard)),
    "T-fig17": (
        trained(aligned, GOOD, POOR, vision.PAPER),
        trained(aligned, POOR, GOOD, vision.PAPER),
    ),
    "T-ckareg": (
        by_objective(standard=BAD, cosine=LITTLE, cka=LITTLE, aligned=GOOD),
        by_objective(standard=BAD, cosine=BAD, aligned=LITTLE, cka=GOOD),
    ),
    "T-kl": (World(lambda model: GOOD), trained(has("distillation", 1.0), GOOD, BAD)),
    "T-thm2": (
        on_states(LINE, label_probability=rising(0.2, 0.9)),
        on_states(LINE, label_probability=rising(0.9, 0.2)),
    ),
}


@pytest.mark.parametrize("name", JUDGED)
def test_a_claim_holds_where_it_is_true_and_does_not_where_it_is_false(name):
    true, false = JUDGED[name]
    assert set(verdicts(name, true).values()) == {"held"}
    assert set(verdicts(name, false).values()) == {"did not hold"}


def test_nothing_is_better_than_a_model_that_fits_all_it_learned_from():
    found = verdicts("T-fig5", separate(1.0))
    assert found["half"] == found["three quarters"] == "not applicable"
    assert found["depth"] == "held"


def test_data_sets_of_the_same_similarity_say_nothing_of_saturation():
    assert verdicts("T-fig3", World(lambda model: GOOD)) == {"agree": "not applicable"}


def test_digits_have_no_other_source():
    found = verdicts("T-fig17", trained(aligned, GOOD, POOR))
    assert found.pop("source") == "not applicable"
    assert set(found.values()) == {"held"}


@pytest.mark.parametrize("name", ["T-fig6", "T-fig16"])
def test_trainings_that_do_not_differ_decide_nothing(name):
    assert set(verdicts(name, World(lambda model: GOOD)).values()) == {"not decided"}


def test_probabilities_count_only_where_similarity_rises():
    # to the last layer: nearer at every second step
    angles = np.radians([90, 60, 80, 30, 50, 0])
    turns = np.stack([np.cos(angles), np.sin(angles)], 1)
    states = np.stack([turns, -turns])  # centred already
    share = similarity._rises_with_similarity
    follows = np.array(
        [[0.2, 0.1, 0.3, 0.2, 0.4]] * 2
    )  # falls where the angle opens, from layer 1 on
    assert share(states, pd.DataFrame(follows)) == 1
    assert share(states, pd.DataFrame(-follows)) == 0


def test_states_on_a_straight_line():
    assert set(verdicts("T-thm1", on_states(LINE)).values()) == {"held"}
    found = verdicts("T-thm1", on_states(states(straight=False)))
    assert found.pop("derivative") == "held"
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
