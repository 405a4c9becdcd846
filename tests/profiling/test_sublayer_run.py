"""A run with sub-layers, from the command line to tables, states and the page."""

import numpy as np
import pytest
import tiny
from models.test_capture import layered, states
from typed import refused

import layerscope
from layerscope import metrics
from layerscope.runs.curves import inside

TEXTS = tiny.texts(20)
SITES = ["attn", "attn_residual", "mlp"]
OPTIONS = {"pooling": "mean", "batch_size": 5, "view_samples": 12, "views": 1}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.saved(tiny.llama(), tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def made(model, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    return layerscope.profile(str(model), TEXTS, out=out, sublayers=True, **OPTIONS)


def test_states_and_token_metrics_are_those_of_a_text_alone(made, model):
    assert made.info["model"]["sublayers"] == {site: [1, 2, 3] for site in SITES}
    assert made.final == "normed" and len(made.columns) == 5
    entropies = made.samples().query("metric == 'prompt_entropy'")
    how = {"samples": TEXTS, "processor": tiny.tokenizer(special=False)}
    scope = layered(str(model), sublayers=True, **how)
    for sample in (3, 11):
        own = entropies[entropies["sample"] == sample]
        alone = states(scope, [TEXTS[sample]])  # no batch-mates, no padding
        for (site, layer), tokens in alone.items():
            found = made.pooled(layer, site=site)[sample]
            np.testing.assert_allclose(found, tokens[0].mean(0), rtol=1e-4, atol=1e-5)
            if site != "normed" or layer == 3:
                expected = float(metrics.prompt_entropy(tokens)[0])
                there = own.query("site == @site and layer == @layer")["value"]
                np.testing.assert_allclose(there, [expected], rtol=1e-4, atol=1e-4)


def test_every_metric_of_one_layer_is_there_at_every_site(made):
    table = made.table()
    rows = table[table["site"].isin(SITES)]
    assert rows["value"].notna().all()
    layers = rows.groupby(["metric", "site"])["layer"].agg(list)
    assert all(each == [1, 2, 3] for each in layers)
    assert {"curvature", "dataset_entropy", "infonce", "lidar"} <= {*rows["metric"]}
    entropy = made.metric("dataset_entropy", site="attn")[2]
    pooled = made.pooled(2, site="attn").astype(float)
    assert entropy == pytest.approx(float(metrics.matrix_entropy(pooled)), rel=1e-5)
    assert {*table[table["layer_b"].notna()]["site"]} == {"raw", "normed"}
    assert {c.site for c in inside(made)} == {*SITES, "raw"}
    with refused("^layer 0 has no attn: layers 1, 2, 3"):
        made.pooled(0, site="attn")
