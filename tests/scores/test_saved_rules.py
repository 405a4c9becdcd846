"""Rules written and read again; those of the package; what trust asks of a record."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from typed import cli

import layerscope.scores as ls
from layerscope.core.errors import LayerscopeError
from layerscope.scores import Choice, Evaluation, Rule

__all__ = ["cli"]


def rule(*gains: float, name: str = "r", kind: str | None = "causal", direction: str = "minimum") -> Rule:
    choices = [Choice(f"m{i}", "", direction, 2, 0.5 + gain, 0.5, 0.9, 0.51, kind) for i, gain in enumerate(gains)]
    return Rule(name, "lidar", direction, -0.5, tuple(choices), variant="q=3", source="here")


def test_rules_come_back_as_they_were(tmp_path: Path):
    one = rule(0.1, 0.2)
    both = Rule("mean rank of 2", "mean rank", None, math.nan, one.choices, parts=(one, rule(0.3, name="s")))
    back = ls.open_rules(ls.save_rules([one, both], tmp_path / "rules.json", command="layerscope evaluate"))
    assert back[0] == one and back[1].parts == both.parts
    assert math.isnan(back[1].correlation) and back[1].mean_gain == both.mean_gain


@pytest.mark.parametrize("text", ["", "[]", "{}", "model,layer\n", '{"format": 3, "kind": "comparison"}'])
def test_a_file_that_holds_no_rules(tmp_path: Path, text: str):
    (tmp_path / "rules.json").write_text(text)
    with pytest.raises(LayerscopeError, match="rules.json' is damaged, or no file of rules: write it again with"):
        ls.open_rules(tmp_path / "rules.json")


def test_rules_of_another_version_of_another_hand_and_of_nowhere(tmp_path: Path):
    path = ls.save_rules([rule(0.1)], tmp_path / "rules.json")
    whole = path.read_text()
    for text, line in (
        ('{"format": 9, "rules": []}', "newer version of layerscope: upgrade it"),
        ('{"format": 1, "rules": [{}]}', "older version of layerscope: write it again"),
        (whole.replace("causal", "masked"), "has changed since it was written"),
    ):
        path.write_text(text)
        with pytest.raises(LayerscopeError, match=line):
            ls.open_rules(path)
    with pytest.raises(LayerscopeError, match="did you mean rules.json"):
        ls.open_rules(tmp_path / "rule.json")


def test_shipped_rules_tell_where_they_come_from():
    shipped = ls.shipped_rules()
    assert shipped and all(r.source and r.choices for r in shipped)
    assert all(choice.kind for r in shipped for choice in r.choices)


def test_shipped_rules_are_those_of_the_published_values(published: Path):
    names = ("{}.csv.gz", "{}_more.csv.gz")
    metrics = pd.concat([ls.open_metrics(published / name.format("metrics")) for name in names])
    scores = pd.concat([ls.open_evaluation(published / name.format("mteb_scores")).scores for name in names])
    fitted = {r.name: r for r in ls.fit_rules(ls.one_variant(ls.corpus_averages(metrics)), Evaluation(scores))}
    shipped = {r.name: r for r in ls.shipped_rules() if "published" in r.source}
    assert fitted.keys() == shipped.keys()
    for name, found in fitted.items():
        assert shipped[name].gains == pytest.approx(found.gains)
        assert shipped[name].layers == found.layers
        assert shipped[name].fixed_gain == pytest.approx(found.fixed_gain, nan_ok=True)
        assert shipped[name].share == found.share
        assert found.share or not found.mean_gain > max(found.fixed_gain, found.chance_gain), (
            "no metric beats a fixed share of depth"
        )
        assert {choice.model for choice in found.choices} <= {f"Pythia-{size}m" for size in (14, 70, 160, 410)}


def test_evaluate_saves_rules(cli, tmp_path: Path, published: Path):
    out = tmp_path / "rules.json"
    given = [published / "mteb_scores.csv.gz", "--metrics", published / "metrics.csv.gz"]
    cli("scores", *given, "--bootstrap", 0, "--save-rules", out, "--kind", "causal")
    (best, *_) = ls.open_rules(out)
    assert best.name == "minimum lidar · wikitext" and {c.kind for c in best.choices} == {"causal"}
    assert "--save-rules" in json.loads(out.read_text())["command"]
    failed = cli("scores", *given[:1], "--save-rules", out)
    assert failed.status == 2 and "no rule to write" in failed.line
    assert replace(best, choices=()).mean_gain != best.mean_gain
