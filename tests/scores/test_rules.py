import math

import numpy as np
import pandas as pd
import pytest
from frames import measured, scored
from hypothesis import given, settings, strategies as st

import layerscope.scores as ls
from layerscope.core.errors import LayerscopeError
from layerscope.scores import Evaluation, Rule
from layerscope.scores.evaluation import ModelOrigin
from layerscope.scores.fitting import fixed_layers

SCORES = {"m": [0.0, 0.2, 0.6, 0.5, 0.4], "n": [0.9, 0.3, 0.4, 0.8, 0.5], "o": [0.0, 0.1, 0.2, 0.3, 0.4]}
# entropy falls where scores rise, on every model (Spearman -1); lidar does on m and n, and on o it has +0.8
ENTROPY = {"m": [0, 9, 1, 2, 3], "n": [0, 9, 8, 1, 7], "o": [0, 4, 3, 2, 1]}
LIDAR = {"m": [0, 4, 1, 2, 3], "n": [0, 4, 3, 1, 2], "o": [0, 1, 3, 2, 4]}


def fitted(models: str = "mno", **options: object) -> dict[str, Rule]:
    scores = Evaluation(pd.concat([scored({"a": SCORES[m]}, m) for m in models]))
    metrics = pd.concat([measured({"entropy": ENTROPY[m], "lidar": LIDAR[m]}, m) for m in models])
    return {rule.metric: rule for rule in ls.fit_rules(metrics, scores, **options)}


def test_gains_by_hand():
    rule = fitted()["entropy"]
    assert (rule.direction, rule.agreeing, rule.failures) == ("minimum", 3, 0)
    assert rule.gains == pytest.approx({"m": 0.6 - 0.4, "n": 0.8 - 0.5, "o": 0.4 - 0.4})
    assert rule.layers == {"m": 2, "n": 3, "o": 4}
    assert rule.mean_gain == pytest.approx((0.2 + 0.3 + 0.0) / 3)
    # a layer drawn at random from 1 to 4
    assert rule.chance_gain == pytest.approx(np.mean([0.425 - 0.4, 0.5 - 0.5, 0.25 - 0.4]))
    assert [choice.regret for choice in rule.choices] == pytest.approx([0, 0, 0])


def test_a_direction_that_does_not_hold_on_the_model_held_out_fails_there():
    rule = fitted()["lidar"]
    assert rule.direction == "minimum"
    # on o lidar rises with the score, but m and n say minimum: layer 1, 0.1 against 0.4
    assert rule.layers["o"] == 1 and rule.gains["o"] == pytest.approx(-0.3)
    assert (rule.failures, rule.worst_gain) == (1, pytest.approx(-0.3))


def test_the_model_held_out_has_no_say_in_the_direction():
    # two models that contradict each other: each is chosen for in the other's direction
    rule = fitted("mo")["lidar"]
    assert {c.model: c.direction for c in rule.choices} == {"m": "maximum", "o": "minimum"}
    assert rule.layers == {"m": 1, "o": 1} and rule.failures == 2
    assert rule.agreeing == 1


def test_scores_of_the_model_held_out_do_not_change_its_layer():
    scores = pd.concat([scored({"a": SCORES[m]}, m) for m in "mno"])
    metrics = pd.concat([measured({"lidar": LIDAR[m]}, m) for m in "mno"])
    other = scores.assign(score=scores["score"].where(scores["model"] != "o", -scores["score"]))
    before, after = (
        {r.name: r.layers["o"] for r in ls.fit_rules(metrics, Evaluation(given))} for given in (scores, other)
    )
    assert before == after and before.keys() == {"minimum lidar · d", "fixed-share"}


def test_revisions_of_a_model_are_held_out_together():
    revisions = [("m", "r"), ("o", "r"), ("o", "s")]
    scores = Evaluation(pd.concat([scored({"a": SCORES[m]}, m).assign(revision=r) for m, r in revisions]))
    lidar = LIDAR | {"m": [0, 4, 3, 2, 1]}  # -0.2: o's other revision, with +0.8, would turn o's direction around
    metrics = pd.concat([measured({"lidar": lidar[m]}, m).assign(revision=r) for m, r in revisions])
    rule = next(found for found in ls.fit_rules(metrics, scores) if found.metric == "lidar")
    assert [c.direction for c in rule.choices] == ["maximum", "minimum", "minimum"]
    assert rule.layers == {"m": 1, "o r": 1, "o s": 1} and rule.gains == pytest.approx({"m": -0.2, "o": -0.3})
    assert rule.mean_gain == pytest.approx((-0.2 - 0.3) / 2) and rule.failures == 3
    assert rule.chance_gain == pytest.approx(np.mean([0.425 - 0.4, 0.25 - 0.4])), "of the same trials"


def test_a_fixed_share_of_depth_is_chosen_on_the_other_models():
    rule = fitted()["entropy"]
    # ranks of layers 1 to 4: m 1 4 3 2, n 1 2 4 3, o 1 2 3 4; layer 3 is the best, or the middle of a tie, of every two
    assert {c.model: c.fixed for c in rule.choices} == {"m": 0.5, "n": 0.8, "o": 0.3}
    assert rule.fixed_gain == pytest.approx(np.mean([0.1, 0.3, -0.1]))
    assert (rule.mean_regret, rule.fixed_regret) == pytest.approx((0, np.mean([0.1, 0, 0.1])))
    own = fitted()["depth"]
    assert own.layers == {"m": 3, "n": 3, "o": 3} and own.share == 0.75 and math.isnan(own.fixed_gain)
    assert own.mean_gain == pytest.approx(rule.fixed_gain) and own.rival_gain == own.chance_gain
    deeper = ("p", pd.Series(np.arange(9.0), index=range(9)))
    pairs = [("q", pd.Series([0.0, 5, 1, 2], index=range(1, 5))), ("q", pd.Series([0.0, 5, 1, 2], index=range(1, 5)))]
    assert fixed_layers([deeper, *pairs]) == [4, 4, 4], "half the depth of one, all of the depth of the other"


def test_models_that_are_scored_in_part_enter_no_rule():
    whole = pd.concat([scored({t: SCORES[m] for t in "abcd"}, m) for m in "mn"])
    without_last = scored({t: SCORES["o"] for t in "abcd"}, "o").query("layer < 3")
    one_task = scored({"a": SCORES["o"]}, "p")
    metrics = pd.concat([measured({"entropy": ENTROPY[m]}, name) for m, name in zip("mnoo", "mnop", strict=True)])
    evaluation = Evaluation(pd.concat([whole, without_last, one_task]))
    rule, fixed = ls.fit_rules(metrics, evaluation)
    assert set(fixed.gains) == {"m", "n"} and set(rule.gains) == {"m", "n"}
    table = evaluation.summary().set_index("model")
    assert table.loc["p", "left_out"] == [0, 1, 2, 3, 4] and math.isnan(table.loc["p", "best"])
    assert table.loc["o", ["last_layer", "last", "best"]].tolist() == [2, 0.2, 0.2], "no more is known from the scores"
    evaluation.origins = {"o": ModelOrigin(None, 4)}
    table = evaluation.summary().set_index("model")
    assert table.loc["o", "last_layer"] == 4 and math.isnan(table.loc["o", "last"])
    assert evaluation.summary(0.25).set_index("model").loc["p", "last"] == 0.4


def test_combined_rule_by_hand():
    rule = fitted()["mean rank"]
    assert [part.metric for part in rule.parts] == ["entropy", "lidar"] and rule.direction is None
    # ranks on n, both from the minimum on: entropy 4 3 1 2, lidar 4 3 1 2
    assert rule.layers["n"] == 3
    # on o: entropy 4 3 2 1, lidar 1 3 2 4
    assert rule.layers["o"] == 3


def test_layer_0_is_a_candidate_only_when_asked():
    scores = Evaluation(pd.concat([scored({"a": SCORES[m]}, m) for m in "mn"]))
    metrics = pd.concat([measured({"known": SCORES[m]}, m) for m in "mn"])
    assert ls.fit_rules(metrics, scores)[0].layers == {"m": 2, "n": 3}
    assert ls.fit_rules(metrics, scores, first_layer=0)[0].layers == {"m": 2, "n": 0}


def test_choose():
    rule = fitted()["entropy"]
    series = pd.Series([0.0, 3.0, math.nan, 2.0, 2.0], index=[0, 1, 2, 3, 4])
    assert rule.choose(series) == 3 and rule.choose(series, first_layer=0) == 0 and rule.choose(series[::-1]) == 3
    assert rule.choose(pd.DataFrame({"other": -series, "entropy": series})) == 3
    top = Rule("maximum entropy", "entropy", "maximum", 0.5, ())
    assert top.choose(series) == 1
    assert math.isnan(top.mean_gain) and math.isnan(top.worst_gain) and top.failures == 0


def test_choose_by_rank():
    combined = fitted()["mean rank"]
    frame = pd.DataFrame({"entropy": [0, 1, 2, 3.0], "lidar": [0, 9, 1, 2.0]}, index=[0, 1, 2, 3])
    assert combined.choose(frame) == 2  # ranks (1+3)/2, (2+1)/2, (3+2)/2
    frame.loc[2, "lidar"] = math.nan
    assert combined.choose(frame) == 1  # layer 2 has no lidar: ranks (1+2)/2 and (2+1)/2, the shallower
    assert combined.choose(frame.assign(lidar=math.nan)) == 1  # entropy alone


def test_errors_of_choose():
    rules = fitted()
    with pytest.raises(LayerscopeError, match=r"metric 'entropy' is not among these by layer, did you mean entropi\?"):
        rules["entropy"].choose(pd.DataFrame({"entropi": [1.0]}))
    with pytest.raises(LayerscopeError, match="no layer from 1 on has a value of entropy: measure it first"):
        rules["entropy"].choose(pd.Series([1.0, math.nan]))
    with pytest.raises(LayerscopeError, match="no layer from 7 on has a value of every metric"):
        rules["mean rank"].choose(pd.DataFrame({"entropy": [1.0], "lidar": [2.0]}), first_layer=7)


def test_one_model_is_not_enough():
    with pytest.raises(LayerscopeError, match="m is the only one with metrics and scores"):
        fitted("m")


def test_a_metric_without_a_direction_gives_no_rule():
    scores = Evaluation(pd.concat([scored({"a": SCORES[m]}, m) for m in "mn"]))
    metrics = pd.concat([measured({"flat": [1.0] * 5, "empty": [None] * 5, "entropy": ENTROPY[m]}, m) for m in "mn"])
    assert [rule.metric for rule in ls.fit_rules(metrics, scores)] == ["entropy", "depth"]


def test_best_mean_gain_comes_first_and_the_table_tells_all():
    rules = list(fitted().values())
    assert [rule.mean_gain for rule in rules] == sorted((rule.mean_gain for rule in rules), reverse=True)
    table = ls.rules_table(rules).set_index("metric")
    assert table.loc["lidar", ["failed", "models", "agreeing"]].tolist() == [1, 3, 3]
    assert table.loc["lidar", "gain o"] == pytest.approx(-0.3) and table.loc["lidar", "layer o"] == 1


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.floats(0, 1), min_size=6, max_size=6), min_size=2, max_size=4))
def test_a_metric_that_is_the_score_finds_the_best_layer(models):
    scores = Evaluation(pd.concat([scored({"a": values}, f"m{i}") for i, values in enumerate(models)]))
    metrics = pd.concat([measured({"oracle": values}, f"m{i}") for i, values in enumerate(models)])
    for rule in (found for found in ls.fit_rules(metrics, scores) if found.share is None):
        assert rule.mean_regret == 0 and rule.direction == "maximum" and rule.failures == 0
        assert all(choice.score == choice.best and choice.gain >= 0 for choice in rule.choices)


def test_published_rules(published):
    evaluation = ls.open_evaluation(published / "mteb_scores.csv.gz")
    curves = ls.one_variant(ls.corpus_averages(ls.open_metrics(published / "metrics.csv.gz")))
    rules = {(rule.metric, rule.corpus): rule for rule in ls.fit_rules(curves, evaluation)}
    valley = rules["prompt_entropy", "wikitext"]
    assert valley.direction == "minimum" and valley.layers == {"Pythia-160m": 8, "Pythia-410m": 12}
    # score at the minimum of prompt entropy, 47.1 and 50.1, less the last layer's 43.5 and 46.8
    assert [round(100 * gain, 1) for gain in valley.gains.values()] == [3.5, 3.3]
    lidar = rules["lidar", "wikitext"]
    assert [round(100 * gain, 1) for gain in lidar.gains.values()] == [3.5, 4.2]
    infonce = rules["infonce", "wikitext"]  # changes sign between the two models
    assert infonce.agreeing == 1
    assert {c.model: c.direction for c in infonce.choices} == {"Pythia-160m": "maximum", "Pythia-410m": "minimum"}
    assert ("curvature", "wikitext") not in rules and len(rules["mean rank", "tasks"].parts) == 6
