"""Without labels: a rule that proved itself, a rule that is forced, or the model as shipped."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from frames import measured, scored

import layerscope
from layerscope import LayerscopeError
from layerscope.runs import Run
from layerscope.scores import Choice, Evaluation, Rule, save_rules, shipped_rules
from layerscope.selection.label_free import distrust, kind_of, rules_from


def rule(run: Run, *gains: float, **more: object) -> Rule:
    """A rule on the run's own prompt entropy, with these gains on models held out."""
    direction = more.get("direction", "maximum")
    fixed = 0.5 + more.pop("fixed", 0.01)
    choices = [
        Choice(f"m{i}", "", direction, 2, 0.5 + gain, 0.5, 0.9, 0.51, "causal", fixed) for i, gain in enumerate(gains)
    ]
    about = {"name": "prompt entropy", "metric": "prompt_entropy", "direction": direction, "site": "raw"}
    about |= {"variant": "alpha=1", "corpus": run.info["data"]["name"]}
    return Rule(correlation=-0.5, choices=tuple(choices), **about | more)


STEADY = (0.03, 0.031, 0.029)
"""Gains that differ little between models."""


def quick(given: object, **options: object) -> layerscope.Selection:
    return layerscope.select(given, **{"cost": False, "progress": False} | options)


def test_without_a_trusted_rule_it_is_the_model_as_shipped(bare):
    found = quick(bare)
    assert found.as_shipped and found.gain == 0 and "no label-free rule is trusted here" in found.why
    assert len(found.refused) == len(shipped_rules()) and all(entry.reason for entry in found.refused)


def test_a_trusted_rule_is_followed_on_the_run_s_own_metric(bare, tmp_path):
    trusted = rule(bare, *STEADY)
    found = quick(bare, evidence=save_rules([trusted], tmp_path / "rules.json"))
    values = bare.metric("prompt_entropy", site="raw").drop(0)
    assert found.layer == values.idxmax() == 1 and found.evidence.gains == trusted.gains and found.gain is None
    assert [row.value for row in found.layers[1:]] == pytest.approx(values.tolist())
    both = [trusted, rule(bare, 0.5, 0.5, name="other", direction="minimum")]
    assert quick(bare, evidence=both).rule == "other"  # the one that gained most


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"variant": "raw"}, "measured differently from the run's (variant raw)"),
        ({"corpus": "wikitext"}, "on wikitext"),
        ({"site": "normed"}, None),
        ({"metric": "lidar2"}, "the run has no lidar2"),
    ],
)
def test_a_metric_must_be_measured_alike(bare, change, reason):
    found = quick(bare, evidence=[rule(bare, *STEADY, **change)])
    if reason is None:
        assert found.rule == "prompt entropy"
    else:
        assert found.as_shipped and reason in found.refused[0].reason


@pytest.mark.parametrize(
    ("gains", "reason"),
    [
        ((0.03,), "tried on 1 held-out causal models, 2 are needed"),
        ((0.03, -0.04), "gains no more than the last layer"),
        ((0.03, 0.02), "lead over the last layer, +2.50 ±0.50, is not certain: 2 models, 1 rule tried"),
        ((0.005, 0.005), "no more than a layer drawn at random"),
        ((0.2, 0.2, -0.01), "fell behind the last layer 1 of 3 times"),
        ((0.2, 0.2, 0.2, -0.01), None),
    ],
)
def test_what_a_record_must_show(bare, gains, reason):
    found = distrust(rule(bare, *gains), "causal")
    assert found is None if reason is None else reason in found


def test_evidence_that_scores_make_needless_is_read_all_the_same(labelled, tmp_path):
    with pytest.raises(LayerscopeError, match=r"evidence .*nope.csv' does not exist"):
        quick(labelled, evidence=tmp_path / "nope.csv")
    found = quick(labelled, evidence=save_rules([], tmp_path / "rules.json"))
    assert found.notes == ("the rules of `evidence` are not followed: scores chose the layer",)


def test_evidence_that_lacks_its_other_half_says_what_it_needs(bare, tmp_path):
    scores = tmp_path / "scores.csv"
    scores.write_text("model,layer,task,main_score\nm,0,a,0.5\nm,1,a,0.6\n")
    assert layerscope.open_evaluation(scores).scores["revision"].tolist() == ["", ""], "a revision may be left out"
    with pytest.raises(LayerscopeError, match="has only scores .* give, as another `evidence`, metrics: a run, or"):
        quick(bare, evidence=scores)


def test_models_of_another_kind_prove_nothing(bare):
    assert kind_of(bare) == "causal"
    assert "0 held-out bidirectional" in distrust(rule(bare, 0.03, 0.02), "bidirectional")
    two_ways = rule(bare, 0.03, 0.02)
    fixed = distrust(rule(bare, 0.03, 0.02, fixed=0.03), "causal")
    assert fixed == "gains no more than a fixed share of depth: regret 37.50, against 37.00"
    unknown = replace(two_ways, choices=tuple(replace(choice, fixed=None) for choice in two_ways.choices))
    assert distrust(unknown, "causal") == "was never compared with a fixed share of depth"
    steps = replace(two_ways, choices=(*two_ways.choices, *[replace(two_ways.choices[0], score=0.4)] * 9))
    assert steps.mean_gain == pytest.approx(((0.03 - 9 * 0.1) / 10 + 0.02) / 2), "a model counts once"
    one, two = two_ways.choices
    assert "direction" in distrust(replace(two_ways, choices=(one, replace(two, direction="minimum"))), "causal")


def test_a_rule_that_is_asked_for_is_followed_with_its_record(bare):
    found = quick(bare, rule="prompt entropy", evidence=[rule(bare, -0.03, variant="raw")])
    assert found.forced and found.layer == bare.metric("prompt_entropy", site="raw").drop(0).idxmax()
    assert found.evidence.mean_gain == pytest.approx(-0.03) and "variant raw" in found.notes[0]
    with pytest.raises(LayerscopeError, match="did you mean prompt entropy"):
        quick(bare, rule="prompt entropi", evidence=[rule(bare)])


def test_rules_fitted_on_scores_and_metrics_that_are_given(bare):
    entropy = dict.fromkeys("mno", [9, 1, 2, 3]) | dict.fromkeys("pqr", [9, 2, 1, 3])
    scores = dict.fromkeys("mno", [0, 0.9, 0.8, 0.4]) | dict.fromkeys("pqr", [0, 0.8, 0.9, 0.4])
    name = bare.info["data"]["name"]
    metrics = [
        measured({"prompt_entropy": entropy[m]}, m, variant="alpha=1", site="raw", pooling=None).assign(dataset=name)
        for m in scores
    ]
    evaluation = Evaluation(pd.concat([scored({"a": scores[m]}, m) for m in scores]))
    found = quick(bare, evidence=(evaluation, *metrics))
    assert found.rule == f"minimum prompt_entropy · {name}" and found.evidence.failures == 0


def test_half_text_runs_the_model_on_the_run_s_own_texts(bare, labelled):
    found = quick(bare, rule="half-text")
    values = [row.value for row in found.layers[1:]]
    assert found.layer in (1 + int(np.argmax(values)), 3) and 0 < min(values) <= max(values) <= 1
    assert found.evidence.name == "half-text" and "the halves of 60 texts" in found.notes[0]
    assert quick(bare, rule="half-text") == found
    scored_too = quick(labelled, rule="half-text")
    assert scored_too.layer == found.layer
    assert scored_too.gain == pytest.approx(scored_too.layers[found.layer].score - scored_too.baseline.score)


def test_bounds_without_a_trusted_rule(bare):
    smallest = layerscope.select(bare, progress=False).layers[1].megabytes
    found = layerscope.select(bare, max_mb=smallest, progress=False)
    assert found.layer == 1 and not found.as_shipped and "the deepest layer within" in found.why
    with pytest.raises(LayerscopeError, match="max_loss needs scores"):
        quick(bare, max_loss=1.0)
    with pytest.raises(LayerscopeError, match="this run has no labels"):
        quick(bare, rule="best")


def test_a_rule_without_a_record_has_no_gain(bare):
    assert math.isnan(rule(bare).mean_gain) and distrust(rule(bare), "causal")


def test_the_command_without_labels(bare, cli, tmp_path):
    shown = json.loads(cli("select", bare.path, "--rule", "half-text", "--no-cost", "--json").out)
    assert shown["forced"] and shown["evidence"]["name"] == "half-text" and len(shown["evidence"]["choices"]) == 8
    assert shown["layers"][1]["value"] > 0 and shown["gain"] in (None, 0)
    shown = cli("select", bare.path, "--no-cost")
    assert "no label-free rule is trusted here" in shown.out and "Rules that were not followed" in shown.out
    assert shown.out.splitlines()[-1] == "nothing to truncate: the model as shipped is the choice"
    (tmp_path / "few.txt").write_text("a few words\n")
    wrong = cli("select", bare.path, "--rule", "half-text", "--data", tmp_path / "few.txt")
    assert wrong.status == 2 and "texts of 8 words or more" in wrong.line and "costs" not in wrong.err


def test_evidence_that_is_a_folder_is_refused(tmp_path: Path):
    with pytest.raises(LayerscopeError, match=r"is not a file of rules: give one that `save_rules` wrote"):
        rules_from(str(tmp_path))


def test_the_fixed_share_is_a_rule_of_its_own(bare, cli):
    found = quick(bare, rule="fixed-share")
    (shipped,) = (rule for rule in shipped_rules() if rule.name == "fixed-share")
    assert (found.layer, found.forced, found.evidence) == (2, True, shipped) and shipped.share == 0.79
    assert [row.value for row in found.layers[1:]] == pytest.approx([1 / 3, 2 / 3, 1])
    assert found.why == "the layer nearest to 79% of the depth, the share that ranks best on scored models"
    assert quick(bare, rule="fixed-share", first_layer=3).layer == 3, "the nearest that may be chosen"
    shown = cli("select", bare.path, "--rule", "fixed-share", "--no-cost").out
    assert "regret, how much more the best layer scores: 2.1 on average" in " ".join(shown.split())


def test_a_metric_is_refused_where_the_share_regrets_less_and_what_would_help_is_said(bare):
    found = quick(bare)
    reasons = {entry.rule.name: entry.reason for entry in found.refused}
    assert reasons["maximum infonce · tasks"] == "gains no more than a fixed share of depth: regret 1.60, against 1.36"
    assert "lead over the last layer, +1.65 ±0.57, is not certain: 4 models" in reasons["fixed-share"]
    assert "would take some 22 scored models, at the spread of these 4" in found.why
    assert found.document().reasons[0].endswith(found.why)
