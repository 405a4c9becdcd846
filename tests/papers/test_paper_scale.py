"""The scale paper from its models to its verdicts, with small local models and data in the place of the hub's."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import tiny
from papers.worlds import spoken
from PIL import Image
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

from layerscope_papers import catalogue, reproduce, vision
from layerscope_papers.assets import Assets
from layerscope_papers.layers import prompts
from layerscope_papers.layers.embedders import MODELS as tuned_models
from layerscope_papers.layers.image_models import Objectives
from layerscope_papers.tracing import generated, glue, transfer

SMALL = {"depth": 3, "width": 16, "heads": 2, "size": 8, "patch": 4, "seeds": 1}
SMALL_VIT = replace(vision.SMALL, **SMALL)


def encoder(folder):
    """Return the folder of a small BERT with its tokenizer."""
    return str(tiny.saved(tiny.bert(), folder))


def seeing(folder, depth, labels, seed=0):
    """Return the folder of a small vision model with its processor."""
    config = ViTConfig(**SMALL_VIT.config(depth), num_labels=labels)
    tiny.seeded(ViTForImageClassification, config, seed).save_pretrained(folder)
    ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs recipes whose settings at the scale paper are others, and returns their board."""

    def call(settings, **options):
        known = catalogue.recipes()
        small = {
            name: replace(known[name], scales={"paper": setup})
            for name, setup in settings.items()
        }
        monkeypatch.setattr(catalogue, "recipes", lambda: small)
        where = {"scale": "paper", "out": tmp_path / "out", "jobs": 1}
        return reproduce(list(settings), **where, **options)

    return call


def test_language_models(run, tmp_path):
    data = tmp_path / "texts.csv"
    samples = [text for text in tiny.texts(60) if " " in text]
    labels = [number % 16 for number in range(len(samples))]
    pd.DataFrame({"text": samples, "label": labels}).to_csv(data, index=False)
    base, tuned = (spoken(tmp_path / str(seed), seed) for seed in (0, 1))
    own = {"data": str(data), "samples": 12, "seeds": 1}
    judge = encoder(tmp_path / "encoder")
    steps = {"context": 64, "steps": 2, "batch_size": 2}
    trained = replace(generated.PAPER, hub=base, encoder=judge, **steps, **own)
    pair = tuple(
        replace(setup, hub=hub, **own)
        for setup, hub in zip(prompts.REASONING, (base, tuned), strict=True)
    )
    hubs = dict(zip(tuned_models, (base, tuned, tuned), strict=True))
    embedders = {
        name: replace(setup, hub=hubs[name], **own)
        for name, setup in tuned_models.items()
    }
    board = run({"T-fig9": trained, "L-fig5": pair, "L-fig13": embedders})
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


def test_image_models_by_objective(run, tmp_path):
    for part in ("train", "val"):
        pictures(tmp_path / "data" / "imagenet" / part, 24)
    names = tuple(seeing(tmp_path / str(seed), 4, 2, seed) for seed in range(4))
    how = {"samples": 24, "device": "cpu"}
    setup = Objectives(names[:1], exceptions=names[1:2], others=names[1:], **how)
    board = run({"L-fig14": setup}, data_dir=tmp_path / "data")
    counts = {v.claim.name: v.interval.n for v in board["L-fig14"].verdicts}
    assert counts == {"valley": 24, "steady": 3, "accuracy": 4}
    values = [v.interval.value for v in board["L-fig14"].verdicts]
    assert np.isfinite(values).all()


def test_images_of_another_source_are_a_folder_of_their_own(tmp_path):
    pictures(tmp_path / "cifar10.2", 6)
    (need, *_) = catalogue.recipes()["T-fig17"].local(vision.PAPER)
    model = vision.STANDARD.seeds(vision.PAPER)[0]
    assets = Assets(tmp_path, None, tmp_path)
    found = transfer.Elsewhere(model, transfer.SOURCE).data(assets)
    assert need == "cifar10.2"
    assert sorted(found.labels) == ["cat"] * 3 + ["dog"] * 3


def test_a_model_of_the_hub_is_tuned_on_a_folder_of_images(run, tmp_path):
    pictures(tmp_path / "data" / "cifar10" / "train", 8)
    pictures(tmp_path / "data" / "cifar10" / "test", 6)
    how = {"epochs": 1, "batch_size": 4, "device": "cpu"}
    hub = seeing(tmp_path / "deit", 3, 5)
    setup = replace(vision.TUNED, hub=hub, **SMALL, **how)
    board = run({"T-fig1": setup}, data_dir=tmp_path / "data")
    assert [v.interval.n for v in board["T-fig1"].verdicts] == [1] * 3
    assert all(np.isfinite(v.interval.value) for v in board["T-fig1"].verdicts)


def test_a_text_classifier_is_tuned_on_a_folder_of_tables(run, tmp_path):
    rows = ["text_a,text_b,label", *(f"a {i},b {i % 3},{i % 2}" for i in range(24))]
    folder = tmp_path / "data" / "rte"
    folder.mkdir(parents=True)
    for name in ("train.csv", "dev.csv"):
        (folder / name).write_text("\n".join(rows))
    model = encoder(tmp_path / "encoder")
    setup = glue.Glue(model, ("rte",), 2e-5, 16, 8, seeds=1)
    board = run({"T-fig8": setup}, data_dir=tmp_path / "data")
    (command,) = board["T-fig8"].commands
    assert command.endswith(f"--data-dir {tmp_path / 'data'}")
    assert [v.interval.n for v in board["T-fig8"].verdicts] == [1, 1]
