"""A whole run against the same metrics computed here, from states that the test's own hooks have seen."""

import math
import zlib

import numpy as np
import pytest
import torch
from models import zoo
from models.tokenizer import word_tokenizer, words

from layerscope import metrics, profile
from layerscope.inputs import augment, open_corpus

N, VIEWS = 24, 2


def texts():
    rng = np.random.default_rng(3)
    return [
        words(rng.integers(3, 80, size=int(n)).tolist())
        for n in rng.integers(4, 30, size=N)
    ]


def tokens_by_layer(model, tokenizer, text):
    """States of layers 0..L of one text alone, by plain hooks on BERT's layers."""
    seen = []
    layers = model.bert.encoder.layer
    handles = [
        layers[0].register_forward_pre_hook(lambda _, args: seen.append(args[0][0]))
    ]
    handles += [
        layer.register_forward_hook(lambda *a: seen.append(a[-1][0]))
        for layer in layers
    ]
    with torch.no_grad():
        model.bert(input_ids=torch.tensor([tokenizer(text)["input_ids"]]))
    for handle in handles:
        handle.remove()
    return seen


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    model, tokenizer, corpus = zoo.bert(), word_tokenizer(), open_corpus(texts())
    out = tmp_path_factory.mktemp("values") / "run"
    run = profile(
        model,
        corpus,
        processor=tokenizer,
        out=out,
        metrics="seven",
        views=VIEWS,
    )
    return run, model, tokenizer, corpus


def value(run, metric, layer, column="value"):
    table = run.table()
    return float(
        table[(table["metric"] == metric) & (table["layer"] == layer)][column].iloc[0]
    )


def test_token_metrics_are_the_mean_of_the_public_functions_with_its_error(measured):
    run, model, tokenizer, corpus = measured
    states = [tokens_by_layer(model, tokenizer, text) for text in corpus.samples]
    for name, function in (
        ("prompt_entropy", metrics.prompt_entropy),
        ("curvature", metrics.curvature),
    ):
        for layer in range(zoo.L + 1):
            each = np.array(
                [float(function(sample[layer].double())) for sample in states]
            )
            assert value(run, name, layer) == pytest.approx(each.mean(), rel=1e-5)
            assert value(run, name, layer, "stderr") == pytest.approx(
                each.std(ddof=1) / math.sqrt(N), rel=1e-4
            )


def test_pooled_and_view_metrics_are_the_public_functions(measured):
    run, model, tokenizer, corpus = measured
    names = list(corpus.names)

    def view(i, v):
        own = zlib.crc32(names[i].encode())
        return (
            corpus.samples[i]
            if v == 0
            else augment(corpus.samples[i], "text", seed=0, sample_id=own, view=v)
        )

    def vectors(text):
        return torch.stack([x.mean(0) for x in tokens_by_layer(model, tokenizer, text)])

    pooled = torch.stack(
        [torch.stack([vectors(view(i, v)) for v in range(VIEWS + 1)]) for i in range(N)]
    )
    pooled = pooled.double()  # [N, views, layers, D]
    assert any(view(i, 1) != view(i, 2) for i in range(N))
    for layer in range(zoo.L + 1):
        z = pooled[:, :, layer]
        order = np.random.default_rng([0, 2]).permutation(N)
        expected = {
            "dataset_entropy": metrics.dataset_entropy(z[:, 0]),
            "effective_rank": metrics.effective_rank(z[:, 0]),
            "infonce": metrics.infonce(z[order, 0], z[order, 1]),
            "dime": metrics.dime(z[order, 0], z[order, 1]),
            "lidar": metrics.lidar(z),
        }
        for name, want in expected.items():
            assert value(run, name, layer) == pytest.approx(
                float(want), rel=2e-4, abs=1e-6
            ), (
                name,
                layer,
            )


def test_a_sample_has_the_same_views_whatever_else_is_drawn(tmp_path):
    from layerscope.models import LoadOptions, Override, find_layers, load, vectors_for
    from layerscope.profiling.options import PassOptions
    from layerscope.profiling.plan import Job, view_of

    corpus = open_corpus(texts())
    loaded = load(zoo.bert(), LoadOptions(), word_tokenizer())
    model = find_layers(loaded, "text", corpus.samples[:3], Override())

    def views(corpus, seed=0):
        options = PassOptions(samples=None, seed=seed)
        job = Job(model, corpus, options, vectors_for(model, "auto"))
        return {corpus.names[i]: view_of(job, i, 1) for i in range(len(corpus))}

    every, some = views(corpus), views(corpus.take([20, 5, 11]))
    assert some == {name: every[name] for name in some}
    assert views(corpus, seed=1) != every


def test_blocks_that_change_their_input_in_place_do_not_change_what_was_seen(tmp_path):
    class InPlace(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, x):
            return self.linear(x.relu_())

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), *[InPlace() for _ in range(3)])
    rows = torch.randn(12, 6)
    run = profile(model, rows, out=tmp_path / "run", metrics="effective_rank")
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(run.pooled(0)), model[0](rows))


def test_the_labels_of_a_classifier_are_matched_by_name(tmp_path):
    names = {0: "NEGATIVE", 1: "POSITIVE"}
    model = zoo.of_class("BertForSequenceClassification", id2label=names)
    samples = texts()
    labels = ["positive" if i % 3 else "negative" for i in range(N)]
    run = profile(
        model,
        (samples, labels),
        processor=word_tokenizer(),
        out=tmp_path / "a",
        metrics="layer_accuracy",
    )
    tokenizer = word_tokenizer()
    with torch.no_grad():
        own = [
            int(
                model(
                    input_ids=torch.tensor([tokenizer(t)["input_ids"]])
                ).logits.argmax()
            )
            for t in samples
        ]
    right = np.mean(
        [p == (label == "positive") for p, label in zip(own, labels, strict=True)]
    )
    assert float(run.metric("layer_accuracy")[zoo.L]) == pytest.approx(right)
    other = profile(
        model,
        (samples, [f"x{i % 2}" for i in range(N)]),
        processor=word_tokenizer(),
        out=tmp_path / "b",
        metrics="layer_accuracy,saturated",
    )
    assert any(
        "not the classes of the model's head (such as x" in note
        for note in other.info["notes"]
    )
