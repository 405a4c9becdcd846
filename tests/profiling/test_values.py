"""A whole run against the same metrics computed here, from states that the test's own hooks have seen."""

import math
import zlib

import numpy as np
import pytest
import tiny
import torch
from recorded import walk
from text_runs import profile

import layerscope
from layerscope import metrics
from layerscope.inputs import augment, open_corpus
from layerscope.models import LoadOptions, Override, find_layers, load, vectors_for
from layerscope.profiling.options import PassOptions
from layerscope.profiling.plan import Job, view_of

N, VIEWS, LAYERS = 24, 2, range(4)
TEXTS = tiny.texts(N)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Return a run and its model."""
    model, out = tiny.bert(), tmp_path_factory.mktemp("values") / "run"
    return profile(model, out, TEXTS, metrics="seven", views=VIEWS), model


def value(run, metric, layer, column="value"):
    table = run.table()
    rows = table[(table["metric"] == metric) & (table["layer"] == layer)]
    return float(rows[column].iloc[0])


@pytest.mark.parametrize("name", ["prompt_entropy", "curvature"])
def test_token_metrics_are_the_mean_of_the_public_functions_with_its_error(
    measured, name
):
    run, model = measured
    states = [walk(model, text)[0].double() for text in TEXTS]
    for layer in LAYERS:
        each = [float(getattr(metrics, name)(sample[layer])) for sample in states]
        assert value(run, name, layer) == pytest.approx(np.mean(each), rel=1e-5)
        error = np.std(each, ddof=1) / math.sqrt(N)
        assert value(run, name, layer, "stderr") == pytest.approx(error, rel=1e-4)


def test_pooled_and_view_metrics_are_the_public_functions(measured):
    run, model = measured

    def view(i, v):
        own = zlib.crc32(str(i).encode())
        return (
            augment(TEXTS[i], "text", seed=0, sample_id=own, view=v) if v else TEXTS[i]
        )

    assert any(view(i, 1) != view(i, 2) for i in range(N))
    pooled = [
        torch.stack([walk(model, view(i, v))[0].mean(1) for v in range(VIEWS + 1)])
        for i in range(N)
    ]
    by_layer = torch.stack(pooled).double()  # [N, views, layers, D]
    order = np.random.default_rng([0, 2]).permutation(N)
    for layer in LAYERS:
        z = by_layer[:, :, layer]
        expected = {
            "dataset_entropy": metrics.dataset_entropy(z[:, 0]),
            "effective_rank": metrics.effective_rank(z[:, 0]),
            "infonce": metrics.infonce(z[order, 0], z[order, 1]),
            "dime": metrics.dime(z[order, 0], z[order, 1]),
            "lidar": metrics.lidar(z),
        }
        for name, want in expected.items():
            near = pytest.approx(float(want), rel=2e-4, abs=1e-6)
            assert value(run, name, layer) == near, (name, layer)


def test_a_sample_has_the_same_views_whatever_else_is_drawn():
    corpus = open_corpus(TEXTS)
    loaded = load(tiny.bert(), LoadOptions(), tiny.tokenizer(special=True))
    model = find_layers(loaded, "text", corpus.samples[:3], Override())

    def views(corpus, seed=0):
        options = PassOptions(samples=None, seed=seed)
        job = Job(model, corpus, options, vectors_for(model, "auto"))
        return {corpus.names[i]: view_of(job, i, 1) for i in range(len(corpus))}

    every, some = views(corpus), views(corpus.take([20, 5, 11]))
    assert some == {name: every[name] for name in some}
    assert views(corpus, seed=1) != every


def test_blocks_that_change_their_input_in_place_do_not_change_what_was_seen(tmp_path):
    class InPlace(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x.relu_())

    torch.manual_seed(0)
    blocks = [InPlace(8, 8) for _ in range(3)]
    model, rows = torch.nn.Sequential(torch.nn.Linear(6, 8), *blocks), tiny.rows(12)
    run = layerscope.profile(model, rows, out=tmp_path, metrics="effective_rank")
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(run.pooled(0)), model[0](rows))


def test_the_labels_of_a_classifier_are_matched_by_name(tmp_path):
    model = tiny.classifier(2)
    model.config.id2label = {0: "NEGATIVE", 1: "POSITIVE"}
    labels = ["Positive" if i % 3 else "negative" for i in range(N)]
    run = profile(model, tmp_path / "a", (TEXTS, labels), metrics="layer_accuracy")
    tops = [int(walk(model, text)[2].argmax()) for text in TEXTS]
    right = np.equal(tops, [label == "Positive" for label in labels]).mean()
    assert float(run.metric("layer_accuracy")[3]) == pytest.approx(right)
    others = TEXTS, [f"x{i % 2}" for i in range(N)]
    other = profile(model, tmp_path / "b", others, metrics="layer_accuracy,saturated")
    note = "not the classes of the model's head (such as x"
    assert any(note in line for line in other.info["notes"])
