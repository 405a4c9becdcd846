"""What rules without labels would have chosen: by hand, and on the published scores."""

import numpy as np
import pandas as pd
import pytest
from frames import measured, scored
from typed import refused

import layerscope.scores as ls
from layerscope.scores import Evaluation
from layerscope.scores.evaluation import ModelOrigin
from layerscope.scores.rules import by_family

SCORES = {
    "m": [0.0, 0.2, 0.6, 0.5, 0.4],
    "n": [0.9, 0.3, 0.4, 0.8, 0.5],
    "o": [0.0, 0.1, 0.2, 0.3, 0.4],
}
LIDAR = {"m": [0, 4, 1, 2, 3], "n": [0, 4, 3, 1, 1], "o": [0, 1, 3, 2, 4]}


def tried(models="mno"):
    scores = Evaluation(pd.concat([scored({"a": SCORES[m]}, m) for m in models]))
    metrics = pd.concat([measured({"lidar": LIDAR[m]}, m) for m in models])
    return ls.rules_table(scores, metrics).set_index(["rule", "model"])


def test_layers_gains_and_regrets_by_hand():
    table = tried()
    lowest = table.loc["minimum lidar · d"]
    assert lowest["layer"].to_dict() == {"m": 2, "n": 3, "o": 1}, (
        "of a tie the shallowest; layer 0 is no candidate"
    )
    assert lowest["gain"].tolist() == pytest.approx([0.2, 0.3, -0.3])
    assert lowest["regret"].tolist() == pytest.approx([0, 0, 0.3])
    assert table.loc["maximum lidar · d", "layer"].tolist() == [1, 1, 4]
    assert table.loc["60 % of the depth", "layer"].tolist() == [2, 2, 2]
    assert (table.loc["100 % of the depth", "gain"] == 0).all()


def test_a_model_counts_once_in_its_family_and_a_family_once():
    names = {"org/pythia-1b": "a", "pythia-70m": "a", "mamba-130m": "a"}
    rows = [scored({task: SCORES["m"]}, name) for name, task in names.items()]
    rows.append(scored({"a": SCORES["n"]}, "pythia-70m").assign(revision="step1"))
    means = by_family(ls.rules_table(Evaluation(pd.concat(rows)))).loc[
        "80 % of the depth"
    ]
    assert means["gain"].to_dict() == pytest.approx(
        {"mamba": 0.1, "pythia": np.mean([0.1, np.mean([0.1, 0.3])])}
    )


def test_models_that_are_scored_in_part_are_left_out():
    whole = scored({t: SCORES["m"] for t in "abcd"}, "m")
    without_last = scored({t: SCORES["o"] for t in "abcd"}, "o").query("layer < 3")
    one_task = scored({"a": SCORES["o"]}, "p")
    metrics = pd.concat([measured({"lidar": LIDAR["o"]}, name) for name in "mop"])
    evaluation = Evaluation(pd.concat([whole, without_last, one_task]))
    assert set(ls.rules_table(evaluation, metrics)["model"]) == {"m"}
    evaluation.origins = {"o": ModelOrigin(None, 4)}
    assert set(ls.rules_table(evaluation)["model"]) == {"m"}
    with refused("no model has scores of its last layer on enough tasks"):
        ls.rules_table(Evaluation(without_last), metrics)


def test_published_rules(published):
    evaluation = ls.open_evaluation(published / "mteb_scores.csv.gz")
    curves = ls.one_variant(
        ls.corpus_averages(ls.open_metrics(published / "metrics.csv.gz"))
    )
    table = ls.rules_table(evaluation, curves).set_index(["rule", "model"])
    valley = table.loc["minimum prompt_entropy · wikitext"]
    assert valley["layer"].to_dict() == {"Pythia-160m": 8, "Pythia-410m": 12}
    # score at the minimum of prompt entropy, 47.1 and 50.1, less the last layer's 43.5 and 46.8
    assert (100 * valley["gain"]).round(1).tolist() == [3.5, 3.3]
    assert (
        set(table["family"]) == {"pythia"} and len(table.loc["70 % of the depth"]) == 2
    )
