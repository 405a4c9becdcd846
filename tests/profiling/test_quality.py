"""Quality measures of a run against the public functions on its states: spectra, dimension, norms."""

import math

import numpy as np
import pytest
import tiny
from recorded import by_sample, walk
from text_runs import profile
from typed import refused

from layerscope import metrics

POOLED = {
    "rankme": "eps=1e-07",
    "anisotropy": None,
    "intrinsic_dimension": "discard=0.1",
    "alpha_req": "ranks=10-32",
    "nesum": None,
}
"""Measures of pooled states, and their variants."""
NORMS = {
    "norm_mean": "mean",
    "norm_median": "median",
    "norm_max": "maximum",
    "sink_share": "sink_share",
}
TEXTS = tiny.texts(40, seed=4)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    names = (*POOLED, *NORMS, "prompt_entropy")
    out = tmp_path_factory.mktemp("quality") / "run"
    how = {"metrics": names, "alpha": [1.0, 2.0], "batch_size": 7}
    return profile(tiny.gpt2(), out, TEXTS, **how)


@pytest.mark.parametrize("name", POOLED)
def test_pooled_ones_are_the_public_functions(run, name):
    for site, layers in (("raw", range(4)), ("normed", [3])):
        for layer in layers:
            want = getattr(metrics, name)(run.pooled(layer, site))
            assert run.metric(name, site=site)[layer] == pytest.approx(want, rel=1e-6)
    assert set(run.table().query("metric == @name")["variant"]) == {POOLED[name]}


@pytest.mark.parametrize("name", NORMS)
def test_norms_are_the_public_functions(run, name):
    model = tiny.gpt2()
    walks = [walk(model, text)[0].double() for text in TEXTS]
    for layer in (0, 2):
        norms = [metrics.norms(z[layer]) for z in walks]
        want = [float(getattr(each, NORMS[name])) for each in norms]
        np.testing.assert_allclose(by_sample(run, name, layer), want, rtol=1e-5)


def test_layers_without_variance_and_few_samples(tmp_path):
    model, same = tiny.gpt2(), [f"w1 {text}" for text in TEXTS[:20]]
    run = profile(model, tmp_path / "a", same, metrics=[*POOLED], pooling="first")
    for name in POOLED.keys() - {"rankme"}:
        assert math.isnan(run.metric(name)[0]), name
    line = "alpha_req is not measured: it needs 12 samples or more of 11 features"
    with refused(line):
        profile(model, tmp_path / "b", TEXTS[:11], metrics="alpha_req")
    few = profile(model, tmp_path / "c", TEXTS[:12], metrics="alpha_req")
    assert set(few.table()["variant"]) == {"ranks=10-11"}
