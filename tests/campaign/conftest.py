"""Tiny files and results of every kind that layerscope reads."""

import frames
import numpy as np
import pandas as pd
import pytest
import soundfile
import tiny
from commands import EARLY, TRAINED
from PIL import Image

FORMATS = ("png", "jpg", "gif", "bmp")


def media(folder):
    """Write images and sounds of two classes, each in a folder."""
    rng = np.random.default_rng(0)
    for i in range(8):
        for kind in ("images", "sounds"):
            (folder / kind / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(rng.integers(0, 255, (20, 20, 3), dtype=np.uint8))
        image.save(folder / "images" / "ab"[i % 2] / f"{i}.{FORMATS[i // 2]}")
        sound = rng.standard_normal(600) * 0.1
        soundfile.write(folder / "sounds" / "ab"[i % 2] / f"{i}.wav", sound, 16000)


def tables(folder):
    """Write texts with labels in every format, pairs, and scores and metrics of several models."""
    texts = tiny.texts(60)
    labels = [f"t{i % 3}" for i in range(60)]
    frame = pd.DataFrame({"text": texts, "label": labels, "n": range(60)})
    frame.to_csv(folder / "table.csv", index=False)
    frame.to_json(folder / "table.jsonl", orient="records", lines=True)
    frame.to_parquet(folder / "table.parquet", compression=None)
    pairs = {"text_a": texts[:30], "text_b": texts[30:], "score": np.linspace(0, 5, 30)}
    pd.DataFrame(pairs).to_csv(folder / "sts.csv", index=False)
    rng = np.random.default_rng(1)
    for write, names, file in (
        (frames.scored, ("x", "y", "z"), "scores.csv"),
        (frames.measured, ("curvature", "dime"), "metrics.csv"),
    ):
        made = [write({name: rng.random(6) for name in names}, m) for m in "abcd"]
        pd.concat(made).to_csv(folder / file, index=False)


@pytest.fixture(scope="session")
def made(forks, tmp_path_factory):
    """Return a folder of models, data and results; copy what is to be changed."""
    folder = tmp_path_factory.mktemp("made")
    classifier = tiny.classifier()
    classifier.config.id2label = {i: f"t{i}" for i in range(3)}
    models = {"bert": tiny.bert(), "cls": classifier, "gpt2": tiny.gpt2()}
    for name, model in models.items():
        tiny.saved(model, folder / name)
    tiny.vit(folder / "vit")
    tiny.wav2vec2(folder / "speech")
    tables(folder)
    media(folder)
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
    return folder
