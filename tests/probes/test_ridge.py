"""The ridge probe: equal to scikit-learn's Ridge in float64, and numbers told from classes by one rule."""

import numpy as np
import pandas as pd
import pytest
import tiny
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_squared_error, r2_score
from sklearn.preprocessing import StandardScaler, normalize
from typed import refused

import layerscope
from layerscope.inputs.columns import labels_of
from layerscope.probes import ridge_probe
from layerscope.probes.linear import APART
from layerscope.probes.ridge import STRENGTHS, ridge_predictions, ridge_probe_values
from layerscope.runs.states import Column


def predicted(rows, targets, train, test, c):
    scaler = StandardScaler().fit(rows[train])
    ridge = Ridge(alpha=1 / c, solver="cholesky")
    ridge.fit(scaler.transform(rows[train]), targets[train])
    return ridge.predict(scaler.transform(rows[test]))


def chosen(rows, targets, fold, number):
    """The C of the lowest error where the folds beside one are held out of it in turn."""
    folds = fold.max() + 1
    errors = []
    for c in STRENGTHS:
        parts = []
        for other in ((number + 1) % folds, (number - 1) % folds):
            train, test = ~np.isin(fold, (number, other)), fold == other
            guess = predicted(rows, targets, train, test, c)
            parts.append(mean_squared_error(targets[test], guess))
        errors.append(sum(parts))
    return STRENGTHS[int(np.argmin(errors))]


@pytest.mark.parametrize("n, width", [(120, 10), (60, 90)])
def test_it_is_scikit_learns_ridge(n, width):
    rng = np.random.default_rng(4)
    states = rng.normal(size=(n, width))
    targets = states @ rng.normal(size=width) + 3 * rng.normal(size=n) + 7
    rows = normalize(states)
    values, fold, strengths = ridge_probe_values(states, targets, 5, 2)
    assert strengths == tuple(chosen(rows, targets, fold, i) for i in range(5))
    guesses = np.zeros(n)
    for number, c in enumerate(strengths):
        guesses[fold == number] = predicted(
            rows, targets, fold != number, fold == number, c
        )
    errors = (targets - guesses) ** 2
    assert values == pytest.approx(1 - errors / targets.var(), rel=1e-9, abs=1e-9)
    score = ridge_probe(states, targets, seed=2)
    assert score.mean == pytest.approx(r2_score(targets, guesses), abs=1e-12)
    assert score.stderr == pytest.approx(values.std(ddof=1) / n**0.5)
    assert score.low < score.mean < score.high and score.n == n


def test_samples_apart_are_predicted_by_all_others():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(90, 8))
    targets = rows[:, 0] + 0.1 * rng.normal(size=90)
    fold = np.where(np.arange(90) < 60, np.arange(90) % 5, APART)
    predictions, _ = ridge_predictions(rows, targets, fold, 0)
    parts = fold != APART, fold == APART
    guesses = [predicted(rows, targets, *parts, c) for c in STRENGTHS]
    assert np.abs(np.array(guesses) - predictions[60:]).max(1).min() < 1e-9


@pytest.mark.parametrize("targets", [[1.0] * 30, [np.nan, *range(29)], [*range(29)]])
def test_wrong_targets(targets):
    with refused("numbers that differ|for each row"):
        ridge_probe(np.random.default_rng(0).normal(size=(30, 3)), targets)


@pytest.mark.parametrize(
    "cells, kind",
    [
        (["0.5", "1", "2"], float),
        ([1.5, 2.5, np.float32(1)], float),
        ([1, 2, 5, 4] * 3, int),
        ([1.0, 2.0, 1.0], int),
        ([i % 77 for i in range(400)], int),  # five samples or more share each
        ([i % 77 for i in range(300)], float),
        (range(300), int),  # names of rows
        (["a", 0.5], str),
        ([[1], [2]], None),
        ([], None),
        ([np.inf, 0.5], None),
    ],
)
def test_numbers_are_classes_or_a_target(cells, kind):
    labels = labels_of(list(cells))
    if kind is None:
        assert labels is None
    else:
        assert {*map(type, labels)} == {kind}


@pytest.fixture(scope="module")
def grades(tmp_path_factory):
    """Return texts graded by the share of some words in them."""
    texts = [text for text in tiny.texts(260, seed=3) if len(text.split()) > 3]
    easy = {f"w{i}" for i in range(30)}
    marks = [np.mean([word in easy for word in text.split()]) for text in texts]
    path = tmp_path_factory.mktemp("grades") / "grades.csv"
    pd.DataFrame({"text": texts, "grade": marks}).to_csv(path, index=False)
    return str(path)


def test_profile_evaluate_and_select_judge_layers_by_a_target(
    bert, grades, tmp_path, cli
):
    done = cli("profile", bert, "--data", grades, "--label-column", "grade",
               "--views", 0, "--pooling", "mean", "--out", tmp_path / "run")  # fmt: skip
    assert done.status == 0 and "numbers to predict" in done.err
    run = layerscope.open_run(tmp_path / "run")
    by_layer = run.metric("ridge_probe")
    assert not {"linear_probe", "knn_probe", "nc1"} & {*run.table()["metric"]}
    plan = run.folder.plan.sort_values("sample")
    for layer in (1, 3):
        states = run.states("mean", (Column(run.final, layer),), plan.index.to_numpy())[
            :
        ][:, 0]
        score = ridge_probe(states, plan["label"].to_numpy())
        assert by_layer[layer] == pytest.approx(score.mean, abs=1e-9)
    chosen = layerscope.select(run, rule="best", cost=False)
    best = by_layer.drop(0).idxmax()
    assert chosen.layer == best and "ridge probe of numbers (R²)" in chosen.scored_on
    frame = pd.read_csv(grades).rename(columns={"grade": "label"})
    scores = layerscope.evaluate(bert, {"linear-probe": frame}, pooling="mean").scores
    at_best = scores[scores["layer"] == best]["score"].item()
    assert at_best == pytest.approx(by_layer[best], abs=1e-6)


@pytest.mark.parametrize(
    "kind, options, message",
    [
        ("knn-probe", {}, "knn-probe takes classes"),
        ("linear-probe", {"shift": "digits"}, "a `shift` takes classes"),
        ("linear-probe", {"mixes": True}, "`mixes` take classes"),
    ],
)
def test_what_takes_classes_refuses_numbers(bert, grades, kind, options, message):
    frame = pd.read_csv(grades).rename(columns={"grade": "label"})
    with refused(message):
        layerscope.evaluate(bert, {kind: frame}, **options)


def test_a_classifier_is_not_trained_on_numbers(bert, grades, tmp_path):
    with refused("are numbers to predict"):
        layerscope.train(bert, grades, label_column="grade", out=tmp_path / "t")
