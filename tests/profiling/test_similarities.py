"""Similarities of layers in a run's table, its figures and its page, against the functions of each pair."""

import itertools
import math

import numpy as np
import pytest
import tiny
from text_runs import profile

from layerscope import metrics
from layerscope.inputs import open_corpus
from layerscope.models import LoadOptions, Override, find_layers, load, vectors_for
from layerscope.profiling.options import PassOptions
from layerscope.profiling.pipeline import check_available
from layerscope.profiling.plan import Job
from layerscope.runs.registry import METRICS

N = 24
CANONICAL = ("cca", "svcca", "pwcca")
NAMES = [m.name for m in METRICS.values() if m.needs == "pairs"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("similarities") / "run"
    return profile(tiny.bert(), out, tiny.texts(N), metrics=NAMES)


def test_every_pair_is_the_function_of_its_states(run):
    states = [run.pooled(layer) for layer in range(4)]
    assert 2 * states[0].shape[1] >= N, "canonical correlations of noise are near 1"
    for name in NAMES:
        square = run.metric(name)
        options = {"kernel": "rbf"} if name == "cka_rbf" else {}
        function = metrics.cka if name == "cka_rbf" else getattr(metrics, name)
        for a, b in itertools.product(range(4), repeat=2):
            value = np.mean(np.asarray(function(states[a], states[b], **options)))
            want = math.nan if name in CANONICAL else value
            near = pytest.approx(want, abs=1e-7, nan_ok=True)
            assert square.loc[a, b] == near, name


def test_canonical_correlations_of_few_samples_are_undefined_and_the_reason_is_reported():
    needed = {name: METRICS[name].how.needed(48) for name in (*CANONICAL, "cka")}
    assert needed == dict.fromkeys(CANONICAL, 97) | {"cka": 4}
    options = PassOptions(metrics=NAMES, samples=None)
    loaded = load(tiny.bert(), LoadOptions(), tiny.tokenizer(special=True))
    model = find_layers(loaded, "text", ["w5 w6"], Override())
    corpus = open_corpus(["a text of words"] * N)
    lines = check_available(Job(model, corpus, options, vectors_for(model, "auto")))
    assert [line.split()[0] for line in lines] == list(CANONICAL)
    assert (
        lines[1]
        == "svcca is not measured: at width 32 it needs 65 samples (raise `samples`)"
    )
