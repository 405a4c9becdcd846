"""Without labels or scores: the model as shipped, a share of a language model, one line for the rules that are gone."""

from pathlib import Path

import pandas as pd
import pytest
import tiny
from test_select_scores import quick
from typed import refused

import layerscope
import layerscope_papers
from layerscope.scores import open_evaluation, rules_table
from layerscope.selection import choice

PUBLISHED = Path(layerscope_papers.__file__).parent / "published"


def test_without_labels_it_is_the_model_as_shipped(bert, tmp_path, cli):
    options = {"samples": 20, "views": 0, "metrics": "effective_rank"}
    run = layerscope.profile(bert, tiny.texts(40), out=tmp_path / "run", **options)
    found = quick(run)
    assert found.as_shipped and found.gain == 0 and found.rule == "baseline"
    why = "without labels or scores of tasks nothing tells which layer serves best"
    assert found.why == why
    shown = " ".join(cli("select", run.path, "--no-cost").out.split())
    assert why in shown and shown.endswith(
        "nothing to truncate: the model as shipped is the choice"
    )


def test_bounds_without_labels(bare):
    smallest = layerscope.select(bare).layers[1].megabytes
    found = layerscope.select(bare, max_mb=smallest)
    assert (
        found.layer == 1
        and not found.as_shipped
        and "the deepest layer within" in found.why
    )
    with refused("`max_loss` needs scores"):
        quick(bare, max_loss=1.0)
    with refused("this run has no labels"):
        quick(bare, rule="best")


def test_without_labels_a_language_model_ends_at_four_fifths_of_its_depth(bare, cli):
    chosen = quick(bare)
    assert (chosen.layer, chosen.rule, chosen.as_shipped) == (
        2,
        "share-of-depth",
        False,
    )
    shown = " ".join(cli("select", bare.path, "--no-cost").out.split())
    assert "80 % of the depth" in shown and "judge it by labels of yours" in shown


def test_what_four_fifths_gained_is_what_the_released_scores_say():
    tables = [
        rules_table(open_evaluation(PUBLISHED / file))
        for file in ("mteb_scores.csv.gz", "mteb_scores_families.csv.gz")
    ]
    rows = pd.concat(tables).query("share == @choice.SHARE").set_index("model")["gain"]
    names = {"LLM2Vec-8B": "llm2vec-mntp-unsup-simcse-8b"}
    gains = {model.lower(): 100 * gain for model, gain in rows.items()}
    for model, points in choice.GAINS.items():
        assert gains[names.get(model, model.lower())] == pytest.approx(points, abs=0.05)


@pytest.mark.parametrize(
    "name, value, mend",
    [
        ("evidence", "rules.json", "no rule without labels earned trust; give labels"),
        ("rule", "one-standard-error", "best-if-clear offers the shallowest layer"),
    ],
)
def test_what_is_gone_is_answered_in_one_line(bare, refusal, name, value, mend):
    with refused(f"`{name}.*` is gone: {mend}"):
        layerscope.select(bare, **{name: value})
    line = refusal("select", bare.path, f"--{name}", value)
    assert f"--{name}" in line and f"is gone: {mend}" in line
