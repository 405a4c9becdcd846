"""Tiny files and results of every kind that layerscope reads."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile
import tiny
from commands import EARLY, TRAINED, Forks
from filelock import FileLock
from PIL import Image


def media(folder: Path) -> None:
    """Write images and sounds of two classes, each in a folder."""
    rng = np.random.default_rng(0)
    for i in range(8):
        for kind in ("images", "sounds"):
            (folder / kind / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(rng.integers(0, 255, (20, 20, 3), dtype=np.uint8))
        image.save(
            folder
            / "images"
            / "ab"[i % 2]
            / f"{i}.{('png', 'jpg', 'gif', 'bmp')[i // 2]}"
        )
        sound = rng.standard_normal(600) * 0.1
        soundfile.write(folder / "sounds" / "ab"[i % 2] / f"{i}.wav", sound, 16000)


def tables(folder: Path) -> None:
    """Write texts with labels in every format, and the tasks of `evaluate`."""
    texts = tiny.texts(60)
    frame = pd.DataFrame(
        {"text": texts, "label": [f"t{i % 3}" for i in range(60)], "n": range(60)}
    )
    frame.to_csv(folder / "table.csv", index=False)
    frame.to_json(folder / "table.jsonl", orient="records", lines=True)
    frame.to_parquet(folder / "table.parquet", compression=None)
    pairs = pd.DataFrame(
        {"text_a": texts[:30], "text_b": texts[30:], "score": np.linspace(0, 5, 30)}
    )
    pairs.to_csv(folder / "sts.csv", index=False)


def published(folder: Path) -> None:
    """Write scores and metrics of several models, as CSV."""
    rng = np.random.default_rng(1)
    each = [(m, "main", layer) for m in "abcd" for layer in range(6)]
    scores = [
        (*row, task, round(rng.random(), 3)) for row in each for task in ("x", "y", "z")
    ]
    pd.DataFrame(
        scores, columns=["model", "revision", "layer", "task", "main_score"]
    ).to_csv(folder / "scores.csv", index=False)
    values = [
        (m, r, "d", name, "raw", layer, rng.random())
        for m, r, layer in each
        for name in ("curvature", "dime")
    ]
    columns = [
        "model",
        "revision",
        "dataset",
        "metric",
        "normalization",
        "layer",
        "value",
    ]
    pd.DataFrame(values, columns=columns).to_csv(folder / "metrics.csv", index=False)


def results(folder: Path, forks: Forks) -> None:
    """Let every verb write what it writes."""
    data = ("--data", "table.csv")
    task = ("--data", "linear-probe:table.csv", "--data", "sts:sts.csv")
    for words in (
        ("profile", "cls", *data, "--out", "run", "--views", 1, "--view-samples", 20),
        ("profile", "bert", *data, "--out", "other", "--views", 0),
        ("evaluate", "bert", *task, "--out", "scores"),
        ("compare", "run", "other", "--out", "compared"),
        ("exits", "cls", *data, *EARLY, "--out", "early"),
        ("train", "cls", "--train", "table.csv", *TRAINED, "--out", "trained"),
    ):
        ended = forks.run(*words, cwd=folder)
        assert ended.status == 0, ended.err


@pytest.fixture(scope="session")
def made(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of models, data and results, one for all workers; copy what is to be changed."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made"
    with FileLock(f"{folder}.lock"):
        if not folder.with_suffix(".done").exists():
            _make(folder, forks)
            folder.with_suffix(".done").touch()
    return folder


def _make(folder: Path, forks: Forks) -> None:
    folder.mkdir()
    tiny.saved(tiny.bert(), folder / "bert")
    classifier = tiny.classifier()
    classifier.config.id2label = {i: f"t{i}" for i in range(3)}
    tiny.saved(classifier, folder / "cls")
    tiny.saved(tiny.gpt2(), folder / "gpt2")
    tiny.vit(folder / "vit")
    tiny.wav2vec2(folder / "speech")
    tables(folder)
    media(folder)
    published(folder)
    results(folder, forks)
