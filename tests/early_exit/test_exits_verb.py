"""The command from data to a model that leaves early, on real models, with its numbers taken again by hand."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
import transformers as hf
from models import zoo
from tiny import llama, saved, texts
from typed import refused

import layerscope
from layerscope.early_exit import ExitModel
from layerscope.early_exit.validation import read_layers, read_validation, record_all
from layerscope.inputs import corpus as corpora, open_corpus
from layerscope.inputs.corpus import TRAINED_ON, kept_digests, seen_of

DEPTH = 6


def sure_classifier():
    """Six blocks, which change little of what a text's first word says."""
    sizes = {"vocab_size": 94, "hidden_size": 64, "intermediate_size": 128}
    kind = "BertForSequenceClassification"
    model = zoo.seeded(kind, DEPTH, **sizes, num_labels=3)
    with torch.no_grad():
        for block in model.bert.encoder.layer:
            for part in (block.attention.output, block.output):
                part.dense.weight.mul_(0.02)
                part.dense.bias.zero_()
                part.LayerNorm.weight.fill_(1.0)
                part.LayerNorm.bias.zero_()
        model.classifier.weight.mul_(8.0)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(
        sure_classifier(), tmp_path_factory.mktemp("model") / "sure", special=False
    )


@pytest.fixture(scope="module")
def table(folder, tmp_path_factory):
    """Texts whose labels are what the model says of nine in ten."""
    path = tmp_path_factory.mktemp("data") / "reviews.csv"
    rng, words = np.random.default_rng(0), texts(320, seed=5, longest=12)
    said = _full(ExitModel(folder), words)
    labels = np.where(rng.random(320) < 0.1, rng.integers(0, 3, 320), said)
    pd.DataFrame({"text": words, "label": labels}).to_csv(path, index=False)
    return path


def test_from_data_to_a_model_that_leaves_early_if_that_pays(
    cli, folder, table, tmp_path
):
    out = tmp_path / "out"
    done = cli(
        *(
            f"exits {folder} --data {table} --batch-size 16 --min-speedup 0.01 "
            f"--exits 2,4 --out {out} --json"
        ).split(),
    )
    assert done.status == 0, done.err
    report = layerscope.open_exit_report(out)
    printed = json.loads(done.out)
    assert printed["verdict"] == report.verdict
    assert report.pays and report.verdict.startswith("pays: ")
    page = out / "report.html"
    assert printed["pages"] == [str(page)] and page.stat().st_size > 400_000
    frame = pd.read_csv(table)
    words = frame["text"].tolist()
    model = ExitModel.from_pretrained(out / "model")
    assert report.path == str(out / "model")
    assert (model.exits, model.threshold) == (report.exits, report.threshold)
    parts = [_run(model, words[i : i + 16]) for i in range(0, 320, 16)]
    layers = torch.cat([part.exit_layer for part in parts]).numpy()
    found = torch.cat([part.prediction for part in parts]).numpy()
    full = _full(model, words)
    assert report.layers["leaving"].tolist() == _counts(layers)
    assert (found == frame["label"]).mean() == pytest.approx(report.accuracy)
    assert (full == frame["label"]).mean() == pytest.approx(report.plain_accuracy)
    assert (found != full).mean() == pytest.approx(report.disagreement)
    assert len(set(full.tolist())) == 3 and len(set(layers.tolist())) > 1, (
        "rows that were swapped would show"
    )
    assert layers.mean() < DEPTH and report.samples == 320 and report.design == 0
    assert report.calibration["n"] == 320
    assert report.calibration["fingerprint"] == model.calibration.fingerprint
    chosen = report.chosen
    assert (chosen["measured"], chosen["error"]) == (report.measured, report.error)
    assert DEPTH / layers.mean() == pytest.approx(chosen["exit_speedup"])
    measured = report.depths["measured"]
    assert measured.notna().all() and measured.iloc[-1] == 1
    cut = layerscope.truncate(folder, 2, tmp_path / "cut")
    short = hf.AutoModelForSequenceClassification.from_pretrained(cut)
    weights = sum(parameter.numel() for parameter in short.parameters())
    assert report.depths["parameters"].iloc[1] == weights
    again = f"exits {folder} --data {table} --exits 2,4 --out".split()
    line = f"'{out}/model' exists: delete it, or name a new folder"
    assert cli(*again, out).line == line
    other = tmp_path / "other"
    bounds = "--min-speedup", 50, "--max-disagreement", 0.2, "--confidence", 0.9
    done = cli(*again, other, *bounds)
    assert done.status == 0 and not (other / "model").exists()
    written = [f"written: {other}", f"page: {other}/report.html"]
    assert done.out.splitlines()[-2:] == written
    said = " ".join(done.out.split())
    assert said.startswith("Does not pay: ") and "; use the plain model" in said
    report = layerscope.open_exit_report(other)
    goal = {"max_disagreement": 0.2, "confidence": 0.9}
    assert report.calibration["goal"] == goal
    assert report.path is None and not report.pays
    assert report.exits == (2, 4) and report.design == 0, (
        "given exits leave all samples to certify"
    )


def test_a_stated_threshold_is_measured_without_a_guarantee(folder, table, tmp_path):
    options = {"threshold": 0.6, "min_speedup": 0.01}
    report = layerscope.exits(folder, table, out=tmp_path, **options)
    frame = pd.read_csv(table)
    assert report.goal == "no guarantee: the threshold was fixed, not calibrated"
    assert (report.exits, report.threshold) == ((1, 2, 3, 4, 5), 0.6)
    assert (report.design, report.calibration) == (0, None)
    model = ExitModel.from_pretrained(tmp_path / "model")
    facts = model.exits, model.threshold, model.calibration
    assert facts == (report.exits, 0.6, None)
    bert = hf.BertForSequenceClassification.from_pretrained(folder).double().eval()
    left, right = [], []
    # the head on every hidden state, a text at a time, in float64
    with torch.no_grad():
        for text, label in frame[["text", "label"]].itertuples(index=False):
            read = model.processor(text, return_tensors="pt")
            states = bert.bert(**read, output_hidden_states=True).hidden_states[1:]
            logits = [bert.classifier(bert.bert.pooler(state))[0] for state in states]
            chances = torch.stack(logits).softmax(-1)
            sure = chances.amax(-1) >= 0.6
            layer = int(sure.int().argmax()) if sure.any() else DEPTH - 1
            left.append(layer + 1)
            right.append(int(chances[layer].argmax()) == label)
    assert report.layers["leaving"].tolist() == _counts(left)
    assert len(set(left)) > 1 and report.accuracy == pytest.approx(np.mean(right))
    speedup = report.chosen["exit_speedup"]
    assert speedup == pytest.approx(DEPTH / np.mean(left)) and report.measured > 0


def _counts(layers):
    """Return how many samples leave at each layer."""
    return np.bincount(layers, minlength=DEPTH + 1)[1:].tolist()


def _run(model, batch):
    return model(**model.processor(batch, padding=True, return_tensors="pt"))


@torch.no_grad()
def _full(model, batch):
    inputs = model.processor(batch, padding=True, return_tensors="pt")
    return model.model(**inputs).logits.argmax(-1).numpy()


def test_data_that_the_model_was_trained_on_are_noted(folder, tmp_path):
    trained = shutil.copytree(folder, tmp_path / "trained")
    same = pd.DataFrame(
        {"text": texts(60, seed=1), "label": [f"LABEL_{i % 3}" for i in range(60)]}
    )
    new = [f"{text} w1 w2 w3 w4 w5" for text in texts(60, seed=2)]
    other = pd.DataFrame({"text": new, "label": range(60)})
    for name, frame in (("same", same), ("other", other)):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    corpus = open_corpus(tmp_path / "same.csv")
    np.save(trained / TRAINED_ON, kept_digests(corpus.take(range(20, 60))))
    old = " ".join(read_validation(ExitModel(trained), tmp_path / "same.csv").notes)
    assert "40 of 60 samples that can be compared are among those that trained" in old
    notes = " ".join(read_validation(ExitModel(trained), tmp_path / "other.csv").notes)
    assert "trained was trained on" not in notes
    assert "of other is not a class of the model" in notes
    plain = read_validation(ExitModel(folder), tmp_path / "same.csv").notes
    assert all(note.endswith("(guessed)") for note in plain)


def test_the_pass_runs_samples_of_like_lengths_together_and_says_of_each_what_it_says_alone(
    folder,
):
    model, words = ExitModel(folder), texts(24, seed=3, longest=12)
    read = read_validation(model, (words, ["LABEL_0", "LABEL_2", "LABEL_1"] * 8))
    widths = []
    model.model.bert.embeddings.register_forward_hook(
        lambda part, given, made: widths.append(made.shape[:2])
    )
    found = record_all(model, read, 4)
    assert len({len(text.split()) for text in words}) > 4, (
        "texts of one length could be in any order"
    )
    total = sum(rows * width for rows, width in widths)
    assert total <= 1.2 * sum(read.lengths), "next to no padding"
    alone = [read_layers(model, model.layered.encoder.batch([text])) for text in words]
    scores, predictions = map(np.concatenate, zip(*alone, strict=True))
    np.testing.assert_allclose(found.scores, scores, atol=1e-5)
    np.testing.assert_array_equal(found.predictions, predictions)
    assert found.labels.tolist() == [0, 2, 1] * 8


WRONG = {
    "--exits 6": "exit 6 does not exist: give layers from 1 on, before the last of 6",
    "--samples 300": "of 300 samples 240 would be tested, and --max-disagreement 0.01 with 95 % confidence "
    "needs 299: give 374 in all",
    "--exits 3 --samples 200": "--max-disagreement 0.01 with 95 % confidence needs 299 samples at "
    "least, and there are 200: give more",
    "--threshold 0.9 --max-disagreement 0.05": "--max-disagreement calibrates the threshold and --threshold fixes it: "
    "give one of the two",
    "--max-new-tokens 16": "--max-new-tokens is for language models, and this is a classifier: leave it out",
    "--max-length 65": "max length 65 is beyond the model's 64 positions: give at most that",
}


@pytest.mark.parametrize("options, line", WRONG.items())
def test_wrong_input(refusal, folder, table, tmp_path, options, line):
    command = f"exits {folder} --data {table} {options} --out {tmp_path}/out"
    assert refusal(*command.split()) == line


def test_models_that_cannot_leave(cli, table, tmp_path):
    with refused("LlamaForCausalLM continues texts, and an ExitModel classifies"):
        ExitModel(saved(llama(), tmp_path / "lm", special=True))
    path = tmp_path / "file"
    path.write_text("taken")
    done = cli("exits", tmp_path / "lm", "--data", table, "--out", path)
    assert (done.status, done.line) == (
        2,
        f"out {str(path)!r} cannot be made ({path} is a file): name a folder",
    )


def test_of_many_samples_an_even_share_of_digests_tells(monkeypatch, tmp_path):
    monkeypatch.setattr(corpora, "MOST_DIGESTS", 200)
    trained = open_corpus([f"text {i}" for i in range(2000)])
    assert len(kept_digests(trained)) == 200
    np.save(tmp_path / TRAINED_ON, kept_digests(trained))
    # a third of which was trained on
    mixed = open_corpus([f"text {i}" for i in range(1000, 4000)])
    found, known = seen_of(mixed, tmp_path)
    assert known == pytest.approx(300, abs=60) and found == pytest.approx(
        known / 3, abs=30
    )
    again, every = seen_of(trained, tmp_path)
    assert again == every == 200
    for damage in (b"", b"no array", (tmp_path / TRAINED_ON).read_bytes()[:-9]):
        (tmp_path / TRAINED_ON).write_bytes(damage)
        assert seen_of(mixed, tmp_path) == (0, 0)
