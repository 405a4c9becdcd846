"""The real command on tiny saved models and small real files: every task, and what comes out of it."""

import json
from pathlib import Path

import learning
import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
from safetensors.torch import load_file
from tiny import one_thread
from typed import cli

import layerscope
from layerscope.core.files import read_json, write_json
from layerscope.training.data import read

__all__ = ["cli", "one_thread"]
TASKS = {
    "classification": (
        learning.encoder,
        learning.table,
        "texts.csv",
        "AutoModelForTokenClassification",
    ),
    "token-classification": (
        learning.encoder,
        learning.tags,
        "tags.jsonl",
        "AutoModelForTokenClassification",
    ),
    "causal-lm": (learning.decoder, learning.novel, "novel.txt", "AutoModelForCausalLM"),
    "masked-lm": (learning.masked, learning.novel, "novel.txt", "AutoModelForMaskedLM"),
    "image-classification": (
        learning.vision,
        learning.photos,
        "photos",
        "AutoModelForImageClassification",
    ),
    "audio-classification": (
        learning.speech,
        learning.sounds,
        "sounds",
        "AutoModelForAudioClassification",
    ),
}


@pytest.mark.parametrize("task", TASKS)
def test_every_task_leaves_a_checkpoint_that_loads_without_layerscope(
    cli, tmp_path: Path, task: str
):
    make, write, name, auto = TASKS[task]
    model, data, out = make(tmp_path / "model"), write(tmp_path / name), tmp_path / "out"
    own = ["--from-config"] if task == "image-classification" else []
    printed = cli(
        "train",
        model,
        "--train",
        data,
        "--out",
        out,
        "--max-steps",
        "3",
        "--batch-size",
        "4",
        "--eval-every",
        "2",
        "--max-length",
        "16",
        "--device",
        "cpu",
        "--json",
        *own,
    )
    assert printed.status == 0, printed.err
    found = json.loads(printed.out)
    assert [row["layer"] for row in found["depths"]] == [1, 2, 3]
    assert {row["metric"] for row in found["depths"]} == {
        "perplexity" if task.endswith("lm") else "layer_accuracy"
    }
    assert all(row["ms_per_sample"] > 0 and row["megabytes"] > 0 for row in found["depths"])
    loaded, told = getattr(hf, auto).from_pretrained(out, output_loading_info=True)
    assert not told["missing_keys"]
    guard = "bert.pooler.dense.bias"
    guards = {guard, f"{guard}_is_empty_so_that_no_sequence_classifier_loads_this"}
    assert told["unexpected_keys"] == (guards if task == "classification" else set())
    assert loaded.config.architectures == [type(loaded).__name__]
    about = json.loads((out / "training.json").read_text())
    assert about["settings"]["task"] == task
    assert about["finished"]
    if about["model"]["classes"]:
        assert [loaded.config.id2label[i] for i in range(len(about["model"]["classes"]))] == about[
            "model"
        ]["classes"]
    steps = layerscope.open_run(out / "history").table()["step"]
    assert sorted(set(steps)) == [0, 2, 3]
    assert "step 3 · loss " in printed.err
    assert auto in (out / "README.md").read_text()
    assert not (out / "checkpoints").exists()
    assert not list(out.rglob("*.bin"))


def test_one_text_classifier_serves_at_every_depth(cli, tmp_path: Path):
    model, data, held = (
        learning.encoder(tmp_path / "bert"),
        tmp_path / "train.csv",
        tmp_path / "eval.csv",
    )
    learning.table(data, 160)
    learning.table(held, 60, seed=1)
    out = tmp_path / "out"
    printed = cli(
        "train",
        model,
        "--train",
        data,
        "--eval",
        held,
        "--out",
        out,
        "--epochs",
        "8",
        "--learning-rate",
        "3e-3",
        "--baseline-depths",
        "1,2",
        "--eval-every",
        "20",
        "--device",
        "cpu",
    )
    assert printed.status == 0, printed.err
    assert "head: linear, over the mean of the tokens" in printed.err
    assert "freshly initialised, seed 0: classifier.bias, classifier.weight" in printed.err
    assert printed.out.startswith("Layer 1 of 3: accuracy ")
    answer = " ".join(printed.out.partition("Effective depth")[0].split())
    assert " as good as all 3 (" in answer and "; N = 60)" in answer
    assert f"\nnext: layerscope truncate {out} --layer 1 --out {out}-1\n" in printed.out
    assert printed.out.endswith(f"\nwritten: {out}\n")
    depths = pd.read_csv(out / "history" / "depths.csv")
    assert list(
        zip(depths["name"], depths["objective"], depths["depth"], depths["layer"], strict=True)
    ) == [
        ("bert", "aligned", 3, 1),
        ("bert", "aligned", 3, 2),
        ("bert", "aligned", 3, 3),
        ("bert, 1 layer", "standard", 1, 1),
        ("bert, 2 layers", "standard", 2, 2),
    ]
    assert (depths["value"] > 0.9).all()

    # the three lines of the card, and what transformers makes of the folder by itself
    processor = hf.AutoTokenizer.from_pretrained(out)
    plain = hf.AutoModelForTokenClassification.from_pretrained(out).eval()
    rows = learning.rows(60, seed=1)
    batch = processor([text for text, _ in rows], padding=True, return_tensors="pt")
    mask = batch["attention_mask"].unsqueeze(-1)
    with torch.no_grad():
        logits = (plain(**batch).logits * mask).sum(1) / mask.sum(1)
    right = [
        plain.config.id2label[int(top)] == label
        for top, (_, label) in zip(logits.argmax(-1), rows, strict=True)
    ]
    assert sum(right) / 60 == pytest.approx(depths["value"][2])

    run = layerscope.profile(out, held, out=tmp_path / "run", views=0, progress=False)
    assert run.info["pooling"] == ["mean"]
    assert cli("truncate", out, "--layer", "1", "--out", tmp_path / "small").status == 0
    small = hf.AutoModelForTokenClassification.from_pretrained(tmp_path / "small")
    assert small.config.num_hidden_layers == 1
    assert small.config.head_pooling == "mean"
    again = layerscope.train(
        tmp_path / "small", data, held, out=tmp_path / "more", max_steps=1, progress=False
    )
    assert hf.AutoConfig.from_pretrained(again).id2label == plain.config.id2label


def test_a_trained_head_keeps_the_order_of_its_classes(tmp_path: Path):
    config = hf.BertConfig(
        **tiny.COMMON,
        max_position_embeddings=64,
        id2label={0: "low", 1: "other", 2: "high"},
        label2id={"low": 0, "other": 1, "high": 2},
    )
    model = tiny.saved(
        tiny.seeded(hf.BertForSequenceClassification, config), tmp_path / "bert", special=True
    )
    data = learning.table(tmp_path / "texts.csv")
    out = layerscope.train(
        model, data, out=tmp_path / "out", max_steps=1, learning_rate=1e-9, progress=False
    )
    kept = hf.AutoModelForSequenceClassification.from_pretrained(out)
    assert kept.config.id2label == {0: "low", 1: "other", 2: "high"}
    old = load_file(model / "model.safetensors")["classifier.weight"]
    assert torch.allclose(kept.classifier.weight, old, atol=1e-6)
    new = layerscope.train(
        model, data, out=tmp_path / "new", max_steps=1, head="new", progress=False
    )
    fresh = hf.AutoModelForSequenceClassification.from_pretrained(new)
    assert fresh.config.id2label == {0: "high", 1: "low"}


@pytest.mark.parametrize("processor", [False, True])
def test_images_of_one_channel(cli, tmp_path: Path, processor: bool):
    config = hf.ViTConfig(
        **learning.SMALL,
        image_size=8,
        patch_size=4,
        num_channels=1,
        num_labels=2,
        id2label={0: "dark", 1: "light"},
    )
    hf.ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    if processor:
        hf.ViTImageProcessor(
            size={"height": 8, "width": 8}, image_mean=[0.5], image_std=[0.5]
        ).save_pretrained(tmp_path / "vit")
    photos, out = learning.photos(tmp_path / "photos", 12), tmp_path / "out"
    assert (
        cli("train", tmp_path / "vit", "--train", photos, "--max-steps", "1", "--out", out).status
        == 0
    )
    card = (out / "README.md").read_text()
    assert (
        ("AutoImageProcessor" in card) is processor is (out / "preprocessor_config.json").is_file()
    )
    assert ("# pixel_values: 1 channel, resized to 8, scaled to -1 ... 1" in card) is not processor
    again = layerscope.profile(out, photos, out=tmp_path / "run", progress=False).metric(
        "layer_accuracy"
    )
    assert again.notna().all()


def test_baselines_can_be_added_to_a_finished_training(tmp_path: Path):
    model, data = learning.vision(tmp_path / "vit"), learning.photos(tmp_path / "photos", 20)
    common = {"out": tmp_path / "out", "from_config": True, "max_steps": 2, "progress": False}
    layerscope.train(model, data, **common)
    before = (tmp_path / "out" / "model.safetensors").stat().st_mtime_ns
    layerscope.train(model, data, baseline_depths=[2], **common)
    assert (tmp_path / "out" / "model.safetensors").stat().st_mtime_ns == before
    baseline = hf.AutoModelForImageClassification.from_pretrained(
        tmp_path / "out" / "baselines" / "depth-2"
    )
    assert baseline.config.num_hidden_layers == 2
    assert pd.read_csv(tmp_path / "out" / "history" / "depths.csv")["objective"].tolist() == [
        *["aligned"] * 3,
        "standard",
    ]


def test_what_was_reported_outlives_the_checkpoints(tmp_path: Path):
    out, about = tmp_path / "out", tmp_path / "out" / "training.json"

    def train() -> None:
        layerscope.train(
            learning.encoder(tmp_path / "bert"),
            learning.table(tmp_path / "texts.csv", 12),
            out=out,
            max_steps=2,
            progress=False,
        )

    train()
    assert not (out / "checkpoints").exists()
    write_json(about, read_json(about) | {"finished": False})
    reported = (
        out / "checkpoints" / "runs" / "host" / "events"
    )  # where the Trainer has TensorBoard write
    reported.parent.mkdir(parents=True)
    reported.write_text("curves")
    train()
    assert reported.read_text() == "curves"
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["runs"]


def test_a_model_is_called_by_what_was_given(tmp_path: Path):
    table = learning.table(tmp_path / "texts.csv", 12)
    folder = learning.encoder(tmp_path / "reader")
    (tmp_path / "other.json").write_text((folder / "config.json").read_text())
    for model, more in (
        (folder, {}),
        (folder / "config.json", {"from_config": True}),
        (tmp_path / "other.json", {"from_config": True, "processor": folder}),
    ):
        out = tmp_path / f"out-{model.name}"
        layerscope.train(model, table, out=out, max_steps=1, progress=False, **more)
        name = "other" if model.stem == "other" else "reader"
        assert json.loads((out / "training.json").read_text())["model"]["name"] == name
        assert json.loads((out / "history" / "run.json").read_text())["model"]["name"] == name
        assert f"# {name}, classification" in (out / "README.md").read_text()
        assert "_name_or_path" not in (out / "config.json").read_text()


def test_pairs_are_read_together(tmp_path: Path):
    model, data = learning.encoder(tmp_path / "bert"), tmp_path / "pairs.csv"
    rows = [
        (f"w{i % 40} w3", f"w{i % 40} w9" if i % 2 else f"w{i % 40 + 45} w9", ("no", "yes")[i % 2])
        for i in range(40)
    ]
    frame = pd.DataFrame(rows, columns=["text_a", "text_b", "label"])
    frame.to_csv(data, index=False)
    assert read(frame, "auto").samples == read(data, "auto").samples
    seen: list[dict] = []
    loaded = hf.BertForSequenceClassification(
        hf.BertConfig(**tiny.COMMON, max_position_embeddings=64)
    )
    loaded.register_forward_pre_hook(lambda _, args, named: seen.append(named), with_kwargs=True)
    loaded.config.id2label, loaded.config.label2id = {0: "no", 1: "yes"}, {"no": 0, "yes": 1}
    text = hf.AutoTokenizer.from_pretrained(model)
    text.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    layerscope.train(
        loaded,
        data,
        out=tmp_path / "out",
        processor=text,
        max_steps=1,
        device="cpu",
        progress=False,
    )
    batch = next(named for named in seen if "token_type_ids" in named)
    width = batch["input_ids"].shape[1]
    wanted = text([row[0] for row in rows], [row[1] for row in rows])
    every = {
        tuple([*ids, *[0] * (width - len(ids))]): types
        for ids, types in zip(wanted["input_ids"], wanted["token_type_ids"], strict=True)
    }
    for ids, types in zip(
        batch["input_ids"].tolist(), batch["token_type_ids"].tolist(), strict=True
    ):
        assert types[: len(every[tuple(ids)])] == every[tuple(ids)]
