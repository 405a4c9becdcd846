"""Without labels or scores: the model as shipped, and one line for the rules that are gone."""

import pytest
from test_select_scores import quick

import layerscope
from layerscope import LayerscopeError


def test_without_labels_it_is_the_model_as_shipped(bare, cli):
    found = quick(bare)
    assert found.as_shipped and found.gain == 0 and found.rule == "baseline"
    why = "without labels or scores of tasks nothing tells which layer serves best"
    assert found.why == why
    shown = " ".join(cli("select", bare.path, "--no-cost").out.split())
    assert why in shown and shown.endswith(
        "nothing to truncate: the model as shipped is the choice"
    )


def test_bounds_without_labels(bare):
    smallest = layerscope.select(bare, progress=False).layers[1].megabytes
    found = layerscope.select(bare, max_mb=smallest, progress=False)
    assert found.layer == 1 and not found.as_shipped and "the deepest layer within" in found.why
    with pytest.raises(LayerscopeError, match="`max_loss` needs scores"):
        quick(bare, max_loss=1.0)
    with pytest.raises(LayerscopeError, match="this run has no labels"):
        quick(bare, rule="best")


@pytest.mark.parametrize(
    ("name", "value", "mend"),
    [
        ("evidence", "rules.json", "no rule without labels earned trust; give labels"),
        ("rule", "half-text", "no rule without labels earned trust; give labels"),
        ("rule", "shift", "few target labels choose worse than none"),
        ("target_labels", 50, "few target labels choose worse than none"),
        ("max_dim", 32, "truncate --dim writes a model of fewer dimensions"),
        (
            "holdout",
            0.3,
            "the gain is of folds: each fold is judged at the layer that the others choose",
        ),
    ],
)
def test_what_is_gone_is_answered_in_one_line(bare, cli, name, value, mend):
    with pytest.raises(LayerscopeError, match=f"`{name}.*` is gone: {mend}"):
        layerscope.select(bare, **{name: value})
    flag = f"--{name.replace('_', '-')}"
    done = cli("select", bare.path, flag, value)
    assert done.status == 2 and flag in done.line and f"is gone: {mend}" in done.line
