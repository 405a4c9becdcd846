"""`select --rule shift` chooses a layer by few labels of the target and judges it on the others."""

from base64 import b64encode
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typed import cli

import layerscope
from layerscope.core.errors import LayerscopeError
from layerscope.scores.shifts import shifts_of
from layerscope.selection import shift as module
from layerscope.selection.selection import open_selection

__all__ = ["cli"]
SOURCE, TARGET = "old (linear probe)", "old → new (linear probe)"
ON_SOURCE, ON_TARGET = (0.5, 0.7, 0.75, 0.9), (0.5, 0.85, 0.8, 0.6)
"""The deepest layer is best on the source, layer 1 on the target."""


def right(shares: tuple[float, ...], n: int, seed: int) -> np.ndarray:
    """Which of n samples are right at each layer, and in the last column at the model as shipped."""
    found = np.random.default_rng(seed).random((n, 1)) + 0.15 * np.random.default_rng(seed + 1).standard_normal((n, 4))
    ranked = stats.rankdata(found, axis=0) / n <= np.array(shares)
    return np.hstack([ranked, ranked[:, -1:]])


def evaluation(n: int = 600, target: str = TARGET, on_target: np.ndarray | None = None) -> layerscope.Evaluation:
    both = {SOURCE: right(ON_SOURCE, 500, 0), target: right(ON_TARGET, n, 5) if on_target is None else on_target}
    rows = []
    for task, hits in both.items():
        for column, layer in enumerate((0, 1, 2, 3, None)):
            own, shipped = hits[:, column], layer is None
            where = {"site": None if shipped else "raw", "pooling": None if shipped else "mean"}
            rows.append({
                "model": "m", "revision": "", "kind": "baseline" if shipped else "layer", "layer": layer, **where,
                "task": task, "score": own.mean(), "stderr": 0.02, "n": len(own),
                "right": b64encode(np.packbits(own).tobytes()).decode(),
                "shifted_from": None if task == SOURCE else SOURCE,
            })  # fmt: skip
    return layerscope.Evaluation(pd.DataFrame(rows).astype({"layer": "Int64"}))


def select(scores: layerscope.Evaluation, **options: object) -> layerscope.selection.Selection:
    return layerscope.select(scores, **{"rule": "shift", "cost": False, "progress": False} | options)


def test_few_labels_find_the_layer_of_the_target_where_accuracy_on_the_source_does_not(tmp_path: Path):
    found = select(evaluation())
    hits = right(ON_TARGET, 600, 5).astype(float)
    order = np.random.default_rng([0, 6, 0]).permutation(600)
    few, rest = order[:100], order[100:]
    assert found.layer == 1 == hits[few].mean(0)[1:4].argmax() + 1
    assert found.apart.score == pytest.approx(hits[rest, 1].mean()) and found.apart.layers == ((1, 500),)
    test = stats.ttest_rel(hits[rest, 1], hits[rest, 3])
    few_labels, source, last, _ = found.shift["rivals"]
    assert tuple(one["layer"] for one in found.shift["rivals"]) == (1, 3, 3, 1)
    assert few_labels["target_gain"] == pytest.approx(hits[rest, 1].mean() - hits[rest, 3].mean())
    assert few_labels["target_gain"] / few_labels["target_gain_error"] == pytest.approx(test.statistic)
    assert (
        few_labels["source"] == pytest.approx(right(ON_SOURCE, 500, 0)[:, 1].mean())
        and few_labels["source_gain"] < -0.1
    )
    assert last["target"] == source["target"] and source["target_gain_error"] == 0
    assert (found.shift["labels"], found.shift["judged"]) == (100, 500)
    assert open_selection(found.save(tmp_path / "choice")).shift == found.shift
    shown = found.document()
    assert shown.answer.startswith("layer 1 of 3 · 85.0 %") and "chosen by 100 others" in shown.answer
    (sentence,) = [line for line in shown.reasons if "instead of" in line]
    assert sentence.startswith("layer 1 instead of layer 3, which accuracy on the source chooses: +23.")
    assert shown.commands[0].startswith("layerscope truncate m --layer 1 ")
    assert [table.name for table in shown.parts] == ["under-shift", "worth", "layers"]


def test_what_labels_are_worth_is_what_draws_of_them_choose():
    scores = evaluation()
    found, hits = select(scores).shift, right(ON_TARGET, 600, 5).astype(float)
    assert [one["labels"] for one in found["worth"]] == [10, 25, 50, 100, 250, 500]
    gains = []
    for draw in range(1, 201):
        order = np.random.default_rng([0, 6, draw]).permutation(600)
        means = hits[order[:25]].mean(0) + 1e-6 * right(ON_SOURCE, 500, 0).mean(0)  # a tie is the source's
        layer = 1 + means[1:4].argmax()
        gains.append(hits[order[25:], layer].mean() - hits[order[25:], 3].mean())
    worth = found["worth"][1]
    assert worth["gain"] == pytest.approx(np.mean(gains)) and worth["worse"] == np.mean(np.array(gains) < 0)
    assert (worth["low"], worth["high"]) == pytest.approx(tuple(np.quantile(gains, [0.05, 0.95])))
    assert worth["gain"] < found["worth"][-1]["gain"], "more labels choose better"
    drawn = [select(scores, seed=seed).shift["rivals"][0]["target"] for seed in range(3)]
    assert len(set(drawn)) > 1 and drawn[0] == select(scores).shift["rivals"][0]["target"]


def test_no_sample_judges_a_choice_that_it_had_a_part_in():
    # noise alone: whoever is judged on what chose it looks better than a coin
    coins = np.random.default_rng(3).random((400, 4)) < 0.5
    coins = np.hstack([coins, coins[:, -1:]])
    values = coins.astype(float)
    even = [0.0] * 5
    found = [module._crossed(values, even, [1, 2, 3], seed)[0].mean() for seed in range(20)]
    assert np.mean(found) < values[:, 1:4].mean(0).max() - 0.01
    shift = select(evaluation(on_target=coins, n=400)).shift
    order = np.random.default_rng([0, 6, 0]).permutation(400)
    assert shift["rivals"][0]["target"] == values[order[100:], shift["rivals"][0]["layer"]].mean()
    # the choice sees nothing of the others: turned over, they change its score alone
    upset = coins.copy()
    upset[order[100:]] = ~upset[order[100:]]
    again = select(evaluation(on_target=upset, n=400)).shift
    assert again["rivals"][0]["layer"] == shift["rivals"][0]["layer"]
    assert again["rivals"][0]["target"] == pytest.approx(1 - shift["rivals"][0]["target"])


def test_an_evaluation_under_a_shift_says_what_is_best_where():
    scores = evaluation()
    (found,) = shifts_of(scores.grids()[0])
    assert (found.source, found.target, found.layers) == (SOURCE, TARGET, (0, 1, 2, 3, None))
    assert found.on_target.mean(0) == pytest.approx(right(ON_TARGET, 600, 5).mean(0))
    shown = scores.document()
    assert shown.answer.startswith(
        f"Layer 1 is best on the target of {TARGET}: 85.00 %; against layer 3, the best on the source, +25.00 ±"
    )
    assert "right" not in scores.as_dict()["scores"][0]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"target_labels": 580}, f"{TARGET} has 600 samples, of which `target_labels=580` leaves 20, and 50 must judge "
         "the choice: give fewer, or label more"),
        ({"target_labels": 3}, "target_labels is 3: give a whole number of at least 10"),
        ({"rule": "best", "target_labels": 50}, "`target_labels` applies only to the rule shift: give `rule='shift'` "
            "too, or leave it out"),
        ({"rule": "shift", "tasks": SOURCE}, f"this evaluation has the shifts {TARGET}: name one, `tasks={TARGET!r}`"),
    ],
)  # fmt: skip
def test_wrong_options_are_one_line(options: dict, line: str):
    with pytest.raises(LayerscopeError) as caught:
        select(evaluation(), **options)
    assert str(caught.value) == line


def test_without_a_shift_there_is_no_such_rule(labelled: layerscope.Run, tmp_path: Path, cli):
    plain = evaluation().scores
    plain = layerscope.Evaluation(plain[plain["task"] == SOURCE])
    with pytest.raises(LayerscopeError, match="no shift to choose under: evaluate a linear-probe with one first"):
        select(plain)
    done = cli("select", labelled.path, "--rule", "shift")
    assert done.status == 2 and done.line == (
        "rule 'shift' needs an evaluation under a shift, and this is a run: evaluate it first"
    )
    done = cli("select", evaluation(n=60).save(tmp_path / "scores"), "--rule", "shift", "--no-cost")
    assert done.status == 2 and "of which --target-labels 100 leaves 0, and 50 must judge" in done.line


@pytest.mark.parametrize("kind", ["prefix", "PCA"])
def test_a_layer_of_fewer_dimensions_is_not_the_layer(kind: str):
    plain = evaluation()
    cut = plain.scores[plain.scores["kind"] == "layer"].assign(kind=kind, dims=32, right=b64encode(bytes(75)).decode())
    both = layerscope.Evaluation(pd.concat([plain.scores, cut]))
    (wanted,), (found,) = (list(shifts_of(each.grids()[0])) for each in (plain, both))
    assert found.layers == wanted.layers
    np.testing.assert_array_equal(found.on_source, wanted.on_source)
    np.testing.assert_array_equal(found.on_target, wanted.on_target)
