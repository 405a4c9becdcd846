"""Quality measures of a run against the public functions on its states: spectra, dimension, norms."""

import math

import numpy as np
import pytest
import tiny
from hooked import by_sample, profile, walk
from typed import refused

from layerscope import metrics

POOLED = ("rankme", "anisotropy", "intrinsic_dimension", "alpha_req", "nesum")
NORMS = {
    "norm_mean": "mean",
    "norm_median": "median",
    "norm_max": "maximum",
    "sink_share": "sink_share",
}
TEXTS = tiny.texts(40, seed=4)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    names = ",".join((*POOLED, *NORMS, "prompt_entropy"))
    out = tmp_path_factory.mktemp("quality") / "run"
    return profile(
        tiny.gpt2(),
        TEXTS,
        out,
        metrics=names,
        alpha=[1.0, 2.0],
        batch_size=7,
    )


def test_pooled_ones_are_the_public_functions(run):
    for site, layers in (("raw", range(4)), ("normed", [3])):
        for layer in layers:
            states = run.pooled(layer, site)
            for name in POOLED:
                value = run.metric(name, site=site)[layer]
                assert value == pytest.approx(
                    getattr(metrics, name)(states), rel=1e-6
                ), (
                    name,
                    site,
                    layer,
                )
    told = {
        "alpha_req": "ranks=10-32",
        "rankme": "eps=1e-07",
        "intrinsic_dimension": "discard=0.1",
    }
    for name, variant in told.items():
        assert set(run.table().query(f"metric == '{name}'")["variant"]) == {variant}


def test_norms_are_the_public_functions(run):
    model = tiny.gpt2()
    walks = [walk(model, text)[0].double() for text in TEXTS]
    for layer in (0, 2):
        states = [z[layer] for z in walks]
        for name, part in NORMS.items():
            want = [float(getattr(metrics.norms(z), part)) for z in states]
            np.testing.assert_allclose(by_sample(run, name, layer), want, rtol=1e-5)


def test_layers_without_variance_and_few_samples(tmp_path):
    same = [f"w1 {text}" for text in TEXTS[:20]]
    run = profile(
        tiny.gpt2(), same, tmp_path / "a", metrics=",".join(POOLED), pooling="first"
    )
    for name in POOLED[1:]:
        assert math.isnan(run.metric(name)[0]), name
    with refused(
        "alpha_req is not measured: it needs 12 samples or more of 11 features"
    ):
        profile(tiny.gpt2(), TEXTS[:11], tmp_path / "b", metrics="alpha_req")
    few = profile(tiny.gpt2(), TEXTS[:12], tmp_path / "c", metrics="alpha_req")
    assert set(few.table()["variant"]) == {"ranks=10-11"}
