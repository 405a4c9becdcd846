"""The real command on tiny saved models and small real files: every task, and what comes out of it."""

import json
from pathlib import Path

import learning
import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
from learning import words
from tiny import one_thread
from typed import cli

import layerscope
from layerscope.core.files import read_json
from layerscope.training.data import read

__all__ = ["cli", "one_thread"]
TASKS = {
    "classification": (
        learning.encoder,
        learning.table,
        "texts.csv",
        "TokenClassification",
    ),
    "token-classification": (
        learning.encoder,
        learning.tags,
        "tags.jsonl",
        "TokenClassification",
    ),
    "causal-lm": (learning.decoder, learning.novel, "novel.txt", "CausalLM"),
    "image-classification": (
        learning.vision,
        learning.photos,
        "photos",
        "ImageClassification",
    ),
    "audio-classification": (
        learning.speech,
        learning.sounds,
        "sounds",
        "AudioClassification",
    ),
}
ONE = {"max_steps": 1, "device": "cpu", "progress": False}


@pytest.mark.parametrize("task", TASKS)
def test_every_task_leaves_a_checkpoint_that_loads_without_layerscope(
    cli, tmp_path: Path, task: str
):
    make, write, name, head = TASKS[task]
    out, auto = tmp_path / "out", f"AutoModelFor{head}"
    options = words(
        "--max-steps 3 --batch-size 4 --eval-every 2 --max-length 16 --device cpu --json"
    )
    if task == "image-classification":
        options.append("--from-config")
    if task == "token-classification":
        options += ["--task", task]
    if task == "audio-classification":  # padding changes this model's states
        options += ["--batch-size", "1"]
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


def test_one_text_classifier_serves_at_every_depth(cli, tmp_path: Path):
    data, held = tmp_path / "train.csv", tmp_path / "eval.csv"
    learning.table(data, 160)
    learning.table(held, 60, seed=1)
    out = tmp_path / "out"
    recipe = "--epochs 8 --learning-rate 3e-3 --eval-every 20 --device cpu"
    files = learning.encoder(tmp_path / "bert"), "--train", data, "--eval", held
    printed = cli("train", *files, "--out", out, *words(recipe))
    assert printed.status == 0, printed.err
    assert "head: linear, over the mean of the tokens" in printed.err
    assert (
        "freshly initialised, seed 0: classifier.bias, classifier.weight" in printed.err
    )
    answer = " ".join(printed.out.partition("Effective depth")[0].split())
    assert answer.startswith("Layer 1 of 3: accuracy ")
    assert " × faster; all 3: " in answer and "(N = 60)" in answer
    assert f"\nnext: layerscope truncate {out} --layer 1 --out {out}-1\n" in printed.out
    assert printed.out.endswith(f"\nwritten: {out}\n")
    depths = pd.read_csv(out / "history" / "depths.csv")
    assert depths["name"].tolist() == ["bert"] * 3 and depths["layer"].tolist() == [
        1,
        2,
        3,
    ]
    assert (depths["value"] > 0.9).all()

    # the three lines of the card, and what transformers makes of the folder by itself
    processor = hf.AutoTokenizer.from_pretrained(out)
    plain = hf.AutoModelForTokenClassification.from_pretrained(out).eval()
    texts, labels = zip(*learning.rows(60, seed=1), strict=True)
    batch = processor(list(texts), padding=True, return_tensors="pt")
    mask = batch["attention_mask"].unsqueeze(-1)
    with torch.no_grad():
        logits = (plain(**batch).logits * mask).sum(1) / mask.sum(1)
    tops = [plain.config.id2label[int(top)] for top in logits.argmax(-1)]
    right = sum(map(str.__eq__, tops, labels))
    assert right / 60 == pytest.approx(depths["value"][2])

    run = layerscope.profile(out, held, out=tmp_path / "run", views=0, progress=False)
    assert run.info["pooling"] == ["mean"]
    small = layerscope.truncate(out, 1, tmp_path / "small", progress=False)
    config = hf.AutoModelForTokenClassification.from_pretrained(small).config
    assert (config.num_hidden_layers, config.head_pooling) == (1, "mean")
    again = layerscope.train(small, data, held, out=tmp_path / "more", **ONE)
    assert hf.AutoConfig.from_pretrained(again).id2label == plain.config.id2label


def test_a_trained_head_keeps_the_order_of_its_classes(tmp_path: Path):
    names = {0: "low", 1: "other", 2: "high"}
    config = hf.BertConfig(**tiny.COMMON, max_position_embeddings=64, id2label=names)
    config.label2id = {name: number for number, name in names.items()}
    bert = tiny.seeded(hf.BertForSequenceClassification, config)
    model = tiny.saved(bert, tmp_path / "bert", special=True)
    data = learning.table(tmp_path / "texts.csv")
    out = layerscope.train(model, data, out=tmp_path / "out", learning_rate=1e-9, **ONE)
    kept = hf.AutoModelForSequenceClassification.from_pretrained(out)
    assert kept.config.id2label == names
    assert torch.allclose(kept.classifier.weight, bert.classifier.weight, atol=1e-6)
    new = layerscope.train(model, data, out=tmp_path / "new", head="new", **ONE)
    assert hf.AutoConfig.from_pretrained(new).id2label == {0: "high", 1: "low"}


def test_images_of_one_channel(tmp_path: Path):
    size = {"image_size": 8, "patch_size": 4, "num_channels": 1}
    config = hf.ViTConfig(**learning.SMALL, **size, id2label={0: "dark", 1: "light"})
    hf.ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    photos = learning.photos(tmp_path / "photos", 12)
    out = layerscope.train(tmp_path / "vit", photos, out=tmp_path / "out", **ONE)
    card = (out / "README.md").read_text()
    assert (
        "AutoImageProcessor" not in card
        and not (out / "preprocessor_config.json").exists()
    )
    run = layerscope.profile(out, photos, out=tmp_path / "run", progress=False)
    assert run.metric("layer_accuracy").notna().all()


def test_pairs_are_read_together(tmp_path: Path):
    rows = [
        (
            f"w{i % 40} w3",
            f"w{i % 40} w9" if i % 2 else f"w{i % 40 + 45} w9",
            ("no", "yes")[i % 2],
        )
        for i in range(40)
    ]
    frame, data = (
        pd.DataFrame(rows, columns=["text_a", "text_b", "label"]),
        tmp_path / "pairs.csv",
    )
    frame.to_csv(data, index=False)
    assert read(frame, "auto").samples == read(data, "auto").samples
    batches: list[dict] = []
    model = tiny.classifier(2)
    model.register_forward_pre_hook(
        lambda _, __, named: batches.append(named), with_kwargs=True
    )
    model.config.id2label, model.config.label2id = (
        {0: "no", 1: "yes"},
        {"no": 0, "yes": 1},
    )
    text = tiny.tokenizer(special=True)
    text.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    layerscope.train(model, data, out=tmp_path / "out", processor=text, **ONE)
    batch = next(named for named in batches if "token_type_ids" in named)
    wanted = text(frame["text_a"].tolist(), frame["text_b"].tolist())
    types = dict(
        zip(map(tuple, wanted["input_ids"]), wanted["token_type_ids"], strict=True)
    )
    lengths = batch["attention_mask"].sum(1)
    for ids, read_types, n in zip(
        batch["input_ids"], batch["token_type_ids"], lengths, strict=True
    ):
        assert read_types[:n].tolist() == types[tuple(ids[:n].tolist())]
