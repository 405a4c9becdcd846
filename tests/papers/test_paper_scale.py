"""The scale paper from its models to its verdicts, with small local models and data in the place of the hub's."""

from dataclasses import replace

import numpy as np
import tiny
from PIL import Image
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
)

from layerscope_papers import catalogue, language, reproduce, vision
from layerscope_papers.assets import Assets
from layerscope_papers.layers import prompts
from layerscope_papers.layers.embedders import MODELS as tuned_models
from layerscope_papers.layers.image_models import Objectives
from layerscope_papers.tracing import generated, glue, transfer

SMALL = {"depth": 3, "width": 16, "heads": 2, "size": 8, "patch": 4, "seeds": 1}
SMALL_VIT = replace(vision.SMALL, **SMALL)


def spoken(folder, seed):
    """Return the folder of a language model of 128 positions."""
    config = GPT2Config(**tiny.gpt2().config.to_diff_dict() | {"n_positions": 128})
    tiny.saved(tiny.seeded(GPT2LMHeadModel, config, seed), folder)
    return str(folder)


def encoder(folder):
    """Return the folder of a small BERT with its tokenizer."""
    tiny.saved(tiny.bert(), folder)
    return str(folder)


def run(names, settings, out, monkeypatch, **options):
    """Return the board of recipes whose settings at the scale paper are others."""
    known = catalogue.recipes()
    small = {
        name: replace(known[name], scales={"paper": settings[name]}) for name in names
    }
    monkeypatch.setattr(catalogue, "recipes", lambda: small)
    return reproduce(list(names), scale="paper", out=out, jobs=1, **options)


def test_language_models(tmp_path, monkeypatch):
    monkeypatch.setattr(language, "HELD", 16)
    data = tmp_path / "texts.txt"
    data.write_text("\n".join(text for text in tiny.texts(60) if " " in text))
    base, tuned = (spoken(tmp_path / str(seed), seed) for seed in (0, 1))
    own = {"data": str(data), "samples": 12, "seeds": 1}
    trained = replace(
        generated.PAPER,
        hub=base,
        encoder=encoder(tmp_path / "encoder"),
        context=64,
        steps=2,
        batch_size=2,
        **own,
    )
    pair = tuple(
        replace(setup, hub=hub, **own)
        for setup, hub in zip(prompts.REASONING, (base, tuned), strict=True)
    )
    embedders = {
        name: replace(setup, hub=hub, **own)
        for (name, setup), hub in zip(
            tuned_models.items(), (base, tuned, tuned), strict=True
        )
    }
    settings = {"T-fig9": trained, "L-fig5": pair, "L-fig13": embedders}
    board = run(settings, settings, tmp_path / "out", monkeypatch)
    assert {v.interval.n for v in board["T-fig9"].verdicts} == {1}
    assert {v.word for v in board["T-fig9"].verdicts} == {"not decided"}
    higher, steadier = board["L-fig5"].verdicts
    assert higher.interval.n == steadier.interval.n > 0
    assert np.isfinite([higher.interval.value, steadier.interval.value]).all()
    of_tuned = {v.claim.name: v.interval for v in board["L-fig13"].verdicts}
    assert of_tuned["invariance supervised"] == of_tuned["invariance unsupervised"]
    assert of_tuned["invariance supervised"].n == 3
    assert of_tuned["entropy supervised"].n == higher.interval.n


def pictures(folder, count):
    """Write random images of two classes."""
    draws = np.random.default_rng(0)
    for number in range(count):
        path = folder / ("cat" if number % 2 else "dog") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = draws.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)


def test_image_models_by_objective(tmp_path, monkeypatch):
    for part in ("train", "val"):
        pictures(tmp_path / "data" / "imagenet" / part, 24)
    config = ViTConfig(**SMALL_VIT.config(4), num_labels=2)
    names = [str(tmp_path / str(seed)) for seed in range(4)]
    for seed, name in enumerate(names):
        tiny.seeded(ViTForImageClassification, config, seed).save_pretrained(name)
        ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(name)
    setup = Objectives(
        autoregressive=tuple(names[:1]),
        exceptions=tuple(names[1:2]),
        others=tuple(names[1:]),
        samples=24,
        device="cpu",
    )
    options = {"data_dir": tmp_path / "data"}
    board = run(
        ["L-fig14"], {"L-fig14": setup}, tmp_path / "out", monkeypatch, **options
    )
    counts = {v.claim.name: v.interval.n for v in board["L-fig14"].verdicts}
    assert counts == {"valley": 24, "steady": 3, "accuracy": 4}
    values = [v.interval.value for v in board["L-fig14"].verdicts]
    assert np.isfinite(values).all()


def test_images_of_another_source_are_a_folder_of_their_own(tmp_path):
    pictures(tmp_path / "cifar10.2", 6)
    (need, *_) = catalogue.recipes()["T-fig17"].local(vision.PAPER)
    model = vision.STANDARD.seeds(vision.PAPER)[0]
    found = transfer.Elsewhere(model, transfer.SOURCE).data(
        Assets(tmp_path, None, tmp_path)
    )
    assert need == "cifar10.2"
    assert sorted(found.labels) == ["cat"] * 3 + ["dog"] * 3


def test_a_model_of_the_hub_is_tuned_on_a_folder_of_images(tmp_path, monkeypatch):
    pictures(tmp_path / "data" / "cifar10" / "train", 8)
    pictures(tmp_path / "data" / "cifar10" / "test", 6)
    how = {"epochs": 1, "batch_size": 4, "device": "cpu"}
    setup = replace(vision.TUNED, hub=str(tmp_path / "deit"), **SMALL, **how)
    config = ViTConfig(**setup.config(setup.depth), num_labels=5)
    ViTForImageClassification(config).save_pretrained(setup.hub)
    ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(setup.hub)
    out = tmp_path / "out"
    board = run(
        ["T-fig1"], {"T-fig1": setup}, out, monkeypatch, data_dir=tmp_path / "data"
    )
    assert [v.interval.n for v in board["T-fig1"].verdicts] == [1] * 3
    assert all(np.isfinite(v.interval.value) for v in board["T-fig1"].verdicts)


def test_a_text_classifier_is_tuned_on_a_folder_of_tables(tmp_path, monkeypatch):
    rows = ["text_a,text_b,label", *(f"a {i},b {i % 3},{i % 2}" for i in range(24))]
    folder = tmp_path / "data" / "rte"
    folder.mkdir(parents=True)
    for name in ("train.csv", "dev.csv"):
        (folder / name).write_text("\n".join(rows))
    model = encoder(tmp_path / "encoder")
    setup = glue.Glue(model, ("rte",), 2e-5, 16, 8, seeds=1)
    options = {"data_dir": tmp_path / "data"}
    board = run(["T-fig8"], {"T-fig8": setup}, tmp_path / "out", monkeypatch, **options)
    (command,) = board["T-fig8"].commands
    assert command.endswith(f"--data-dir {tmp_path / 'data'}")
    assert [v.interval.n for v in board["T-fig8"].verdicts] == [1, 1]
