"""Translators of others and of other models, and trainings that cannot be: read, or refused in one line."""

import shutil

import pytest
import tiny
import torch
from logit_lens.readers import PLAIN
from logit_lens.test_translators import HELD, TRAIN, WEIGHTS, trained, tuned
from safetensors.torch import load_file, save_file
from torch import nn
from typed import refused

from layerscope import lens

__all__ = ["trained"]


def emptied(folder):
    for path in folder.iterdir():
        path.unlink()


def cut(folder):
    weights = folder / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-50])


def spoilt(folder):
    weights = load_file(folder / WEIGHTS)
    weights["1.bias"][3] = torch.nan
    save_file(weights, folder / WEIGHTS)


def forgotten(folder):
    (folder / "translators.json").write_text("{}")


@pytest.mark.parametrize(
    "harm, line",
    [
        (shutil.rmtree, "does not exist: train translators there"),
        (emptied, "holds no complete translators"),
        (cut, "holds no complete translators"),
        (spoilt, "does not hold finite translators"),
        (forgotten, "is damaged, or no translators"),
    ],
)
def test_what_are_no_translators_of_this_model_is_one_line(
    trained, tmp_path, harm, line
):
    folder = shutil.copytree(trained[1], tmp_path / "own")
    harm(folder)
    with refused(line):
        tuned(tiny.llama(), folder, train=None)


def quantised():
    return torch.ao.quantization.quantize_dynamic(
        tiny.llama(), {nn.Linear}, dtype=torch.qint8
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make, how, line",
    [
        (lambda: tiny.llama(seed=1), {"train": None}, r"other translators \(weights: "),
        (tiny.llama, {"steps": 41}, r"other translators \(steps: 20 there, 41 here\)"),
        (tiny.llama, {"train": TRAIN[:50]}, r"other translators \(text: "),
        (
            tiny.llama,
            {"tuned": "new", "train": ["w1 w2"]},
            "2 tokens to train on: give 1,024 or more",
        ),
        (
            tiny.llama,
            {"tuned": "x", "out": "x"},
            "`train` needs `tuned`, a folder of its own",
        ),
        (
            tiny.llama,
            {"tuned": "full"},
            "`tuned='.*full'` exists and holds no translators: name a new folder",
        ),
        (
            tiny.classifier,
            {"tuned": "new"},
            "needs a model that predicts tokens, and BertForSequenceClassification",
        ),
        (
            lambda: tiny.broken_llama("[UNK]"),
            {"tuned": "new", "train": ["unheard", *TRAIN]},
            r"layer 0 gives NaN or infinity in step \d+ of training",
        ),
        (quantised, {"tuned": "new"}, "passes no gradients, as with quantised weights"),
        (
            tiny.llama,
            {"tuned": "new", "train": "nowhere.txt"},
            "'nowhere.txt' does not exist",
        ),
    ],
)
def test_a_wrong_training_is_one_line(trained, tmp_path, monkeypatch, make, how, line):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("all of it")
    model, folder = make(), how.get("tuned", trained[1])
    given = {
        "train": TRAIN,
        "steps": 20,
        **{name: value for name, value in how.items() if name != "tuned"},
    }
    with refused(line):
        lens(model, data=HELD, tuned=folder, processor=PLAIN, **given)
