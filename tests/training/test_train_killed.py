"""A training that is killed goes on where it was, to the same weights."""

import signal
from pathlib import Path

import learning
import pytest
import torch
from commands import Forks
from safetensors.torch import load_file
from tiny import one_thread

import layerscope
from layerscope.core.files import read_json, write_json

__all__ = ["one_thread"]
COMMON = {
    "max_steps": 14,
    "eval_every": 4,
    "batch_size": 8,
    "learning_rate": 1e-3,
    "seed": 3,
    "device": "cpu",
}


def images(place: Path) -> tuple[Path, Path, dict]:
    return (
        learning.vision(place / "model"),
        learning.photos(place / "data"),
        {"from_config": True, "augment": True},
    )


def masks(place: Path) -> tuple[Path, Path, dict]:
    return (
        learning.masked(place / "model"),
        learning.novel(place / "data.txt"),
        {"task": "masked-lm", "max_length": 16},
    )


def skips(place: Path) -> tuple[Path, Path, dict]:
    model, data = learning.decoder(place / "model"), learning.novel(place / "data.txt")
    return model, data, {"preset": "layerskip", "layer_dropout": 0.5, "max_length": 16}


@pytest.mark.parametrize("make", [images, masks, skips])
def test_a_killed_training_ends_with_the_weights_of_an_undisturbed_one(
    forks: Forks, tmp_path: Path, make
):
    model, data, own = make(tmp_path)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    layerscope.train(model, data, out=whole, progress=False, **COMMON, **own)

    options = [
        word
        for name, value in (COMMON | own).items()
        for word in (
            [f"--{name.replace('_', '-')}"]
            if value is True
            else [f"--{name.replace('_', '-')}", value]
        )
    ]
    running = forks.start("train", model, "--train", data, "--out", killed, *options)
    running.until(
        lambda: list(killed.glob("checkpoints/checkpoint-*/trainer_state.json")), 0.02
    )  # amid an epoch
    running.kill()
    assert running.wait().status == -signal.SIGKILL
    left = [
        int(folder.name.rpartition("-")[2]) for folder in killed.glob("checkpoints/checkpoint-*")
    ]
    assert left and max(left) < COMMON["max_steps"] and not (killed / "model.safetensors").exists()

    layerscope.train(model, data, out=killed, progress=False, **COMMON, **own)
    one, two = load_file(whole / "model.safetensors"), load_file(killed / "model.safetensors")
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    tables = [layerscope.open_run(place / "history").table() for place in (whole, killed)]
    assert list(tables[0]["step"]) == list(tables[1]["step"])
    assert tables[0]["value"].equals(tables[1]["value"])
    assert not (killed / "checkpoints").exists()


def test_killed_after_the_last_step_it_takes_no_other(tmp_path: Path):
    model, data = learning.encoder(tmp_path / "bert"), learning.table(tmp_path / "texts.csv")
    out = tmp_path / "out"

    def train() -> dict[str, torch.Tensor]:
        layerscope.train(
            model,
            data,
            out=out,
            max_steps=3,
            scheduler="constant",
            learning_rate=1e-3,
            device="cpu",
            keep_checkpoints=True,
            progress=False,
        )
        return load_file(out / "model.safetensors")

    whole = train()
    (out / "model.safetensors").unlink()
    write_json(out / "training.json", read_json(out / "training.json") | {"finished": False})
    again = train()
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    assert layerscope.open_run(out / "history").table()["step"].max() == 3
