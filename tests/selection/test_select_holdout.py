"""Samples held out of a choice judge the chosen layer and have no part in choosing it."""

import numpy as np
import pytest
from frames import scored
from test_select_scores import quick

import layerscope
from layerscope import LayerscopeError
from layerscope.probes.linear import held_out, linear_probe_hits
from layerscope.scores import Evaluation


@pytest.fixture(scope="module")
def many(model: str, tmp_path_factory: pytest.TempPathFactory) -> layerscope.Run:
    """A run of 400 samples whose labels a probe reads now and then."""
    import tiny

    texts = tiny.texts(400, longest=9)
    return layerscope.profile(
        model,
        [f"{text} w{i}" for i, text in enumerate(texts)],
        out=tmp_path_factory.mktemp("many"),
        views=0,
        labels=["abc"[len(text.split()) % 3] for text in texts],
        metrics="effective_rank",
        progress=False,
    )


def test_samples_held_out_judge_the_layer_and_have_no_part_in_choosing_it(many, cli):
    found = quick(many, rule="best", holdout=0.3)
    labels = many.folder.plan.query("view == 0").sort_values("sample")["label"].to_numpy()
    out = held_out(labels, 0.3, 0)
    assert out.sum() == 120 and all(abs(out[labels == name].mean() - 0.3) < 0.01 for name in "abc")
    # the score is that of a probe of all the others, its strength chosen on them alone
    apart = linear_probe_hits(many.pooled(found.layer, "normed"), labels, apart=out)[0][out]
    assert found.apart.score == pytest.approx(apart.mean()) and found.apart.layers == (
        (found.layer, 120),
    )
    last = linear_probe_hits(many.pooled(many.depth, "normed"), labels, apart=out)[0][out]
    assert found.apart.difference == pytest.approx(apart.mean() - last.mean()) == found.gain
    # other labels of the samples held out change their score and nothing of the choice
    upset = np.where(out, np.roll(labels, 1), labels)
    assert (held_out(upset, 0.3, 0) != out).any()
    for row, layer in zip(found.layers, range(many.depth + 1), strict=True):
        chosen = linear_probe_hits(many.pooled(layer, "normed")[~out], labels[~out])[0]
        assert row.score == pytest.approx(chosen.mean())
        again = linear_probe_hits(many.pooled(layer, "normed"), upset, apart=out)[0]
        assert (again[~out] == chosen).all()
    done = cli("select", many.path, "--holdout", 0.3, "--no-cost")
    assert "(judged on 120 samples, 3 classes; chosen on 280 others)" in " ".join(done.out.split())
    assert "120 held-out samples, which neither chose the layer nor trained a probe" in " ".join(
        done.out.split()
    )


def test_what_a_holdout_needs(many, labelled, bare):
    found = quick(labelled, holdout=0.3)
    assert found.as_shipped and found.lacking.startswith(
        "`holdout=0.3` leaves only 18 samples, 2 classes: 50 judged"
    )
    scores = Evaluation(scored({"x": [0.1, 0.4, 0.2]}))
    for given, options, line in (
        (many, {"holdout": 1}, "holdout is 1: give a number between 0 and 1, such as 0.3"),
        (
            many,
            {"holdout": 0.99},
            "two classes with 5 samples each: label more, or hold out less than `holdout=0.99`",
        ),
        (
            bare,
            {"holdout": 0.3},
            "`holdout` needs scores, and this run has no labels: leave it out",
        ),
        (
            scores,
            {"holdout": 0.3},
            "an evaluation keeps one score per task: give a run with labels",
        ),
    ):
        with pytest.raises(LayerscopeError, match=line):
            quick(given, **options)
