"""Two models of images or sounds side by side: from models and data, from runs, and from states that were extracted."""

from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
import transformers as hf
from PIL import Image
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from typed import cli

import layerscope

__all__ = ["cli"]
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two vision models and of images."""
    folder = tmp_path_factory.mktemp("media")
    for seed, name in enumerate(("one", "other")):
        config = hf.ViTConfig(**SMALL, image_size=16, patch_size=8)
        tiny.seeded(hf.ViTModel, config, seed).save_pretrained(folder / name)
        hf.ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(
            folder / name
        )
    (folder / "photos").mkdir()
    for i, pixels in enumerate(load_digits().images[:40]):
        Image.fromarray((pixels * 15).astype(np.uint8)).convert("RGB").save(
            folder / "photos" / f"{i:02}.png"
        )
    return folder


def pooled(place: Path, name: str, layer: int) -> np.ndarray:
    """The mean hidden state of every image by transformers alone, float64 [N, D]."""
    model, read = (
        hf.ViTModel.from_pretrained(place / name),
        hf.ViTImageProcessor.from_pretrained(place / name),
    )
    images = [Image.open(path) for path in sorted((place / "photos").iterdir())]
    with torch.no_grad():
        states = model(
            **read(images, return_tensors="pt"), output_hidden_states=True
        ).hidden_states
    return states[layer].mean(1).double().numpy()


def biased_cka(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a - a.mean(0), b - b.mean(0)
    return float(
        np.sum((a.T @ b) ** 2) / np.linalg.norm(a.T @ a) / np.linalg.norm(b.T @ b)
    )


def test_two_models_over_the_same_images(place, cli, monkeypatch):
    monkeypatch.chdir(place)
    how = ("--data", "photos", "--similarity", "cka,rsa", "--cka", "biased")
    done = cli("compare", "one", "other", *how, "--out", "both")
    assert done.status == 0, done.err
    found = layerscope.open_comparison("both")
    assert found.n == 40
    assert [run.path for run in found.runs] == ["runs/one-photos", "runs/other-photos"]
    square, ranks = found.similarity(metric="cka"), found.similarity(metric="rsa")
    for a, b in ((0, 1), (1, 1), (2, 0)):
        own, other = pooled(place, "one", a), pooled(place, "other", b)
        assert square.loc[a, b] == pytest.approx(biased_cka(own, other), abs=1e-4)
        wanted = spearmanr(
            pdist(own, "correlation"), pdist(other, "correlation")
        ).statistic
        assert ranks.loc[a, b] == pytest.approx(wanted, abs=1e-2)
    saved = layerscope.compare(
        ["runs/one-photos", "runs/other-photos"], cka="biased", progress=False
    )
    np.testing.assert_array_equal(saved.similarity(metric="cka"), square)
    mixed = layerscope.compare(
        ["runs/one-photos", "other"], data="photos", cka="biased", progress=False
    )
    np.testing.assert_array_equal(mixed.similarity(metric="cka"), square)
    gone = cli("compare", "one", "other", "--data", "photos", "--samples", "20")
    assert (gone.status, "profile" in gone.line) == (2, True)
