"""Similarities of layers in a run's table, its figures and its page, against the functions of each pair."""

import math

import numpy as np
import pytest
from models import zoo
from models.tokenizer import word_tokenizer, words

from layerscope import metrics, profile
from layerscope.inputs import open_corpus
from layerscope.models import LoadOptions, Override, find_layers, load
from layerscope.profiling.options import PassOptions
from layerscope.profiling.pipeline import check_available
from layerscope.runs.registry import METRICS

N = 24
CANONICAL = ("cca", "svcca", "pwcca")
NAMES = [m.name for m in METRICS.values() if m.needs == "pairs"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    rng = np.random.default_rng(3)
    texts = [
        words(rng.integers(3, 80, size=int(n)).tolist())
        for n in rng.integers(4, 30, size=N)
    ]
    how = {
        "processor": word_tokenizer(),
        "metrics": NAMES,
        "views": 0,
    }
    return profile(
        zoo.bert(), texts, out=tmp_path_factory.mktemp("similarities") / "run", **how
    )


def test_every_pair_is_the_function_of_its_states(run):
    for name in NAMES:
        square = run.metric(name)
        options = {"kernel": "rbf"} if name == "cka_rbf" else {}
        function = metrics.cka if name == "cka_rbf" else getattr(metrics, name)
        for a in range(zoo.L + 1):
            for b in range(zoo.L + 1):
                value = np.mean(
                    np.asarray(function(run.pooled(a), run.pooled(b), **options))
                )
                want = math.nan if name in CANONICAL else value
                assert square.loc[a, b] == pytest.approx(want, abs=1e-7, nan_ok=True), (
                    name
                )
    assert 2 * run.pooled(0).shape[1] >= N, (
        "so that canonical correlations of noise are near 1"
    )


def test_canonical_correlations_of_few_samples_are_undefined_and_the_reason_is_reported():
    rng = np.random.default_rng(0)
    noise = {
        n: (rng.standard_normal((n, 48)), rng.standard_normal((n, 48)))
        for n in (60, 480)
    }
    for name in CANONICAL:
        assert (
            getattr(metrics, name)(*noise[60]) > 0.75
            and getattr(metrics, name)(*noise[480]) < 0.4
        )
        assert METRICS[name].how.needed(48) == 97 and METRICS["cka"].how.needed(48) == 4
    options = PassOptions(metrics=NAMES, samples=None)
    loaded = load(zoo.bert(), LoadOptions(), word_tokenizer())
    model = find_layers(loaded, "text", ["w5 w6"], Override())
    lines = check_available(options, model, open_corpus(["a text of words"] * N))
    assert [line.split()[0] for line in lines] == list(CANONICAL)
    assert (
        lines[1]
        == "svcca is not measured: at width 32 it needs 65 samples (raise `samples`)"
    )
