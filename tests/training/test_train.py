"""The real command on tiny saved models and small real files: every task, and what comes out of it."""

import json

import learning
import numpy as np
import pandas as pd
import pytest
import tiny
import torch
import transformers as hf

import layerscope
from layerscope.core.files import read_json
from layerscope.training.data import read

TASKS = {
    "classification":
        (learning.encoder, learning.table, "texts.csv", "TokenClassification", ""),
    "token-classification":
        (learning.encoder, learning.tags, "tags.jsonl", "TokenClassification", "--task token-classification"),
    "causal-lm": (learning.decoder, learning.novel, "novel.txt", "CausalLM", ""),
    "image-classification":
        (learning.vision, learning.photos, "photos", "ImageClassification", "--from-config"),
    # padding changes this model's states
    "audio-classification":
        (tiny.wav2vec2, learning.sounds, "sounds", "AudioClassification", "--batch-size 1"),
}  # fmt: skip
"""A model, what it learns from, the head that transformers loads, and what must be named."""
ONE = {"max_steps": 1, "device": "cpu"}


@pytest.mark.parametrize("task", TASKS)
def test_every_task_leaves_a_checkpoint_that_loads_without_layerscope(
    cli, tmp_path, task
):
    make, write, name, head, more = TASKS[task]
    out, auto = tmp_path / "out", f"AutoModelFor{head}"
    options = f"--max-steps 3 --batch-size 4 --eval-every 2 --max-length 16 --device cpu --json {more}".split()
    files = make(tmp_path / "model"), "--train", write(tmp_path / name)
    printed = cli("train", *files, "--out", out, *options)
    assert printed.status == 0, printed.err
    depths = pd.DataFrame(json.loads(printed.out)["depths"])
    assert depths["layer"].tolist() == [1, 2, 3]
    assert {*depths["metric"]} == {
        "perplexity" if task.endswith("lm") else "layer_accuracy"
    }
    assert (depths[["ms_per_sample", "megabytes"]] > 0).all(axis=None)
    loaded, keys = getattr(hf, auto).from_pretrained(out, output_loading_info=True)
    assert not keys["missing_keys"] and not keys["unexpected_keys"]
    assert loaded.config.architectures == [type(loaded).__name__]
    about = read_json(out / "training.json")
    assert about["settings"]["task"] == task and about["finished"]
    classes = about["model"]["classes"] or []
    assert [loaded.config.id2label[i] for i in range(len(classes))] == classes
    assert {*layerscope.open_run(out / "history").table()["step"]} == {0, 2, 3}
    assert "step 3 · loss " in printed.err
    assert auto in (out / "README.md").read_text()
    assert not (out / "checkpoints").exists() and not list(out.rglob("*.bin"))


def test_one_text_classifier_serves_at_every_depth(cli, tmp_path):
    data = learning.table(tmp_path / "train.csv", 160)
    held = learning.table(tmp_path / "eval.csv", 60, seed=1)
    out = tmp_path / "out"
    recipe = "--epochs 8 --learning-rate 3e-3 --eval-every 20 --device cpu"
    files = learning.encoder(tmp_path / "bert"), "--train", data, "--eval", held
    printed = cli("train", *files, "--out", out, *recipe.split())
    assert printed.status == 0, printed.err
    assert "head: linear, over the mean of the tokens" in printed.err
    fresh = "freshly initialised, seed 0: classifier.bias, classifier.weight"
    assert fresh in printed.err
    answer = " ".join(printed.out.partition("Effective depth")[0].split())
    assert answer.startswith("Layer 1 of 3: accuracy ")
    assert " × faster; all 3: " in answer and "(N = 60)" in answer
    assert f"\nnext: layerscope truncate {out} --layer 1 --out {out}-1\n" in printed.out
    assert printed.out.endswith(f"\nwritten: {out}\n")
    run = layerscope.open_run(out / "history")
    scores = run.metric("layer_accuracy")
    assert run.info["model"]["name"] == "bert" and [*scores.index] == [1, 2, 3]
    assert (scores > 0.9).all()

    # the three lines of the card, and what transformers makes of the folder by itself
    processor = hf.AutoTokenizer.from_pretrained(out)
    plain = hf.AutoModelForTokenClassification.from_pretrained(out).eval()
    texts, labels = zip(*learning.rows(60, seed=1), strict=True)
    batch = processor(list(texts), padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = plain(**batch).logits * batch["attention_mask"].unsqueeze(-1)
    right = [
        plain.config.id2label[int(top)] == label
        for top, label in zip(logits.sum(1).argmax(-1), labels, strict=True)
    ]
    assert np.mean(right) == pytest.approx(scores[3])


def test_a_trained_head_keeps_the_order_of_its_classes(tmp_path):
    bert, names = tiny.classifier(), ("low", "other", "high")
    bert.config.id2label = dict(enumerate(names))
    bert.config.label2id = {name: number for number, name in enumerate(names)}
    model = tiny.saved(bert, tmp_path / "bert")
    data = learning.table(tmp_path / "texts.csv")
    # a warm-up begins at 0: the first step of it changes nothing
    still = ONE | {"learning_rate": 1.0, "scheduler": "constant", "warmup": 1}
    out = layerscope.train(model, data, out=tmp_path / "out", **still)
    kept = hf.AutoModelForSequenceClassification.from_pretrained(out)
    assert kept.config.id2label == bert.config.id2label
    assert torch.allclose(kept.classifier.weight, bert.classifier.weight, atol=1e-6)
    new = layerscope.train(model, data, out=tmp_path / "new", head="new", **ONE)
    assert hf.AutoConfig.from_pretrained(new).id2label == {0: "high", 1: "low"}


def test_pairs_are_read_together(tmp_path):
    data = tmp_path / "pairs.csv"
    data.write_text("text_a,text_b,label\nw1 w3,w1,no\nw4,w9,yes\n")
    frame = pd.read_csv(data)
    pairs = (("w1 w3", "w1"), ("w4", "w9"))
    for source, task in ((frame, "auto"), (data, "auto"), (data, "classification")):
        assert read(source, task, None, None).samples == pairs
