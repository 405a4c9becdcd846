"""CrossEncoder and SparseEncoder: what is written of them gives the scores and vectors that were judged."""

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from scipy.stats import spearmanr
from sentence_transformers import CrossEncoder, SparseEncoder
from typed import refused

import layerscope
from layerscope.models import LoadOptions, Override
from layerscope.runs.states import Column
from layerscope.shrinking.opening import task_of
from layerscope.shrinking.tasks import HELD
from layerscope.truncation.source import open_source

FIRST, SECOND = tiny.texts(160, seed=1), tiny.texts(160, seed=2)
PAIRS = [*zip(FIRST, SECOND, strict=True)]
FRAME = pd.DataFrame({"text_a": FIRST, "text_b": SECOND})
QUIET = {"minutes": 0.02, "max_loss": 1000}
PLAIN = torch.nn.Identity()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a reranker, a classifier of pairs, and a sparse encoder."""
    folder = tmp_path_factory.mktemp("wrapped")
    tiny.saved(tiny.classifier(1), folder / "plain")
    tiny.saved(tiny.classifier(3), folder / "plain3")
    tiny.saved(tiny.bert(), folder / "mlm")
    for kind, source, name, options in (
        (CrossEncoder, "plain", "reranker", {"max_length": 40}),
        (CrossEncoder, "plain3", "classes", {}),
        (SparseEncoder, "mlm", "sparse", {}),
    ):
        model = kind(str(folder / source), device="cpu", **options)
        model.save_pretrained(str(folder / name))
    return folder


def scores(path, layers=3, pairs=PAIRS):
    """Return a CrossEncoder's scores of pairs by its first layers alone."""
    model = CrossEncoder(str(path), device="cpu")
    blocks = model.model.bert.encoder
    blocks.layer = blocks.layer[:layers]
    return model.predict(pairs, activation_fn=PLAIN)


def sparse(path, layers, texts):
    """Return sparse vectors of texts by the MLM head on a layer."""
    model = SparseEncoder(str(path), device="cpu")
    blocks = model.transformers_model.bert.encoder
    blocks.layer = blocks.layer[:layers]
    return model.encode(texts, convert_to_sparse_tensor=False)


def products(path, layers=3, pairs=PAIRS):
    first, second = (
        sparse(path, layers, [*texts]) for texts in zip(*pairs, strict=True)
    )
    return (first * second).sum(1).numpy()


READ = {"reranker": scores, "sparse": products}


def test_a_cut_reranker_keeps_its_head_and_settings(folder, tmp_path):
    full = CrossEncoder(str(folder / "reranker"), device="cpu", activation_fn=PLAIN)
    for name, given, source in (
        ("of-folder", folder / "reranker", "reranker"),
        ("of-object", full, "reranker"),
        ("of-classifier", folder / "plain", "plain"),
    ):
        layerscope.truncate(given, 2, out=tmp_path / name)
        wanted = scores(folder / source, 2)
        assert scores(tmp_path / name) == pytest.approx(wanted, abs=1e-6)
    cut = CrossEncoder(str(tmp_path / "of-object"), device="cpu")
    assert (cut.max_seq_length, len(cut.model.bert.encoder.layer)) == (40, 2)
    assert type(cut.activation_fn) is torch.nn.Identity
    assert "CrossEncoder(" in (tmp_path / "of-folder" / "README.md").read_text("utf-8")
    assert len(full.model.bert.encoder.layer) == 3, "the object is as it was"


@pytest.mark.parametrize("name, read", [("reranker", scores), ("sparse", products)])
def test_layers_are_judged_by_the_models_own_scores(name, read, folder, tmp_path):
    truth = read(folder / name, 2) + 0.01 * np.random.default_rng(0).normal(size=160)
    task = {"pairs": FRAME.assign(score=truth)}
    judged = layerscope.evaluate(folder / name, task)
    by_layer = judged.scores[judged.scores["kind"] == "layer"].set_index("layer")
    for layer in (1, 2, 3):
        wanted = spearmanr(read(folder / name, layer), truth).statistic
        assert by_layer["score"][layer] == pytest.approx(wanted, abs=1e-6)
    judged.save(tmp_path / "scores")
    chosen = layerscope.select(judged, out=tmp_path / "choice")
    assert (chosen.layer, chosen.as_shipped) == (2, False)


def test_classes_of_pairs_are_judged_by_accuracy(folder):
    predictions = CrossEncoder(str(folder / "classes"), device="cpu").predict(PAIRS)
    labels = np.where(np.arange(160) < 120, predictions.argmax(1), 0)
    judged = layerscope.evaluate(
        folder / "classes", {"pairs": FRAME.assign(label=labels)}
    )
    baseline = judged.scores[judged.scores["kind"] == "baseline"]["score"].item()
    assert baseline == (predictions.argmax(1) == labels).mean()


def test_profile_reads_both_texts_of_a_pair(folder, tmp_path):
    truth = scores(folder / "reranker", 2)
    frame = FRAME.assign(score=truth)
    run = layerscope.profile(folder / "reranker", frame, views=1, out=tmp_path / "run")
    assert run.info["pooling"] == ["first"] and "infonce" in {*run.table()["metric"]}
    assert run.metric("ridge_probe")[2] > 0.5
    full = CrossEncoder(str(folder / "reranker"), device="cpu")
    texts = FIRST[:4], SECOND[:4]
    batch = full.tokenizer(*texts, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        hidden = full.model(**batch, output_hidden_states=True).hidden_states[2]
    plan = run.folder.plan
    rows = plan[plan["view"] == 0].sort_values("sample").index[:4].to_numpy()
    states = run.states("first", (Column("raw", 2),), rows)[:][:, 0]
    assert torch.allclose(states, hidden[:, 0], atol=1e-5)


@pytest.mark.parametrize(
    "name, labelled", [("reranker", True), ("reranker", False), ("sparse", True)]
)
def test_what_is_shrunk_gives_the_scores_that_were_judged(
    name, labelled, folder, tmp_path
):
    data, read, path = FRAME, READ[name], tmp_path / "out" / "model"
    if labelled:
        data = FRAME.assign(score=read(folder / name, 2))
    shrunk = layerscope.shrink(folder / name, data, out=tmp_path / "out", **QUIET)
    loader = {"reranker": "CrossEncoder", "sparse": "SparseEncoder"}[name]
    assert shrunk.met and shrunk.load == f"{loader}({str(path)!r})"
    assert labelled or shrunk.healed
    source = open_source(folder / name, None, Override(), LoadOptions())
    task = task_of(data, None, None, None, source.model, "cls", 0)
    rows = task.rows(HELD)
    pairs = [tuple(task.samples[row]) for row in rows]
    full, small = read(folder / name, pairs=pairs), read(path, pairs=pairs)
    truth = full
    if labelled:
        truth = task.truth[rows]
    lost = spearmanr(full, truth).statistic - spearmanr(small, truth).statistic
    assert shrunk.loss == pytest.approx(100 * lost, abs=1e-3)
    if name == "reranker":
        cut = open_source(path, None, Override(), LoadOptions()).model
        assert task.read(cut, HELD)[:, 0] == pytest.approx(small, abs=1e-6)


def test_a_cut_sparse_encoder_keeps_head_and_pooling(folder, tmp_path):
    layerscope.truncate(folder / "sparse", 2, out=tmp_path / "cut")
    wanted = sparse(folder / "sparse", 2, FIRST)
    assert torch.allclose(sparse(tmp_path / "cut", 2, FIRST), wanted, atol=1e-6)
    assert "SparseEncoder(" in (tmp_path / "cut" / "README.md").read_text("utf-8")


def test_a_sparse_encoder_is_shrunk_by_agreement(folder, tmp_path):
    data = [*FIRST, *SECOND]
    shrunk = layerscope.shrink(folder / "sparse", data, out=tmp_path / "out", **QUIET)
    assert shrunk.healed and shrunk.loss < shrunk.cut_loss
    source = open_source(folder / "sparse", None, Override(), LoadOptions())
    held = task_of(data, None, None, None, source.model, "mean", 0).texts(HELD)
    paths = folder / "sparse", tmp_path / "out" / "model"
    agreement = torch.cosine_similarity(*(sparse(path, 3, held) for path in paths))
    assert shrunk.loss == pytest.approx(100 - 100 * agreement.mean().item(), abs=1e-3)


def test_blocks_of_a_reranker_are_chosen_by_its_scores(folder, tmp_path):
    run = layerscope.profile(folder / "reranker", FRAME, views=0, out=tmp_path / "run")
    removal = layerscope.select(run, drop=1, data=FRAME)
    assert removal.measure == "scores" and len(removal.blocks) == 1


LABELLED = FRAME[["text_a"]].rename(columns={"text_a": "text"}).assign(label="a")
LABELLED.loc[::2, "label"] = "b"


@pytest.mark.parametrize(
    "verb, name, data, line",
    [
        ("shrink", "sparse", LABELLED, "gives sparse ones: give pairs with a score"),
        ("shrink", "reranker", FRAME.assign(label="a"), "are no scores that differ"),
        ("evaluate", "sparse", {"linear-probe": LABELLED}, "give it pairs:FILE"),
        ("evaluate", "mlm", {"pairs": FRAME.assign(score=range(160))}, "sts:FILE"),
        ("evaluate", "reranker", {"pairs": FRAME}, "text_a, text_b and score"),
        ("exits", "reranker", FRAME, "has no head of classes"),
    ],
)
def test_what_cannot_be_done_is_one_line(verb, name, data, line, folder, tmp_path):
    with refused(line):
        getattr(layerscope, verb)(folder / name, data, out=tmp_path / "out")


@pytest.mark.parametrize(
    "name, options, line",
    [
        ("reranker", {"mix": {1: 0.5, 2: 0.5}}, "`mix` is for dense vectors"),
        ("sparse", {"layer": 2, "dim": 8}, "`dim` is for dense vectors"),
        ("sparse", {"layer": 2, "format": "onnx"}, "gives sparse vectors"),
    ],
)
def test_what_needs_dense_vectors_is_refused(name, options, line, folder, tmp_path):
    with refused(line):
        layerscope.truncate(folder / name, out=tmp_path / "cut", **options)
