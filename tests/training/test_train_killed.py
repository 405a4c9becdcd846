"""A training that is killed goes on where it was, to the same weights."""

import signal

import learning
import torch
from safetensors.torch import load_file

import layerscope
from layerscope.core.files import read_json, write_json
from layerscope.training import fit

COMMON = (
    "--max-steps 14 --eval-every 4 --batch-size 8 --learning-rate 1e-3 --seed 3 --device cpu "
    "--from-config --augment"
)


def same_weights(one, two):
    ours, theirs = (
        load_file(one / "model.safetensors"),
        load_file(two / "model.safetensors"),
    )
    return ours.keys() == theirs.keys() and all(
        torch.equal(ours[k], theirs[k]) for k in ours
    )


def test_a_killed_training_ends_with_the_weights_of_an_undisturbed_one(forks, tmp_path):
    model, data = (
        learning.vision(tmp_path / "model"),
        learning.photos(tmp_path / "data"),
    )
    words = ["train", model, "--train", data, *COMMON.split()]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert forks.run(*words, "--out", whole).status == 0
    running = forks.start(*words, "--out", killed)
    states = "checkpoints/checkpoint-*/trainer_state.json"
    running.until(lambda: list(killed.glob(states)), 0.02)  # amid an epoch
    running.kill()
    assert running.wait().status == -signal.SIGKILL
    steps = [int(state.parent.name.rpartition("-")[2]) for state in killed.glob(states)]
    assert steps and max(steps) < 14 and not (killed / "model.safetensors").exists()

    assert forks.run(*words, "--out", killed).status == 0
    assert same_weights(whole, killed)
    one, two = (
        layerscope.open_run(place / "history").table() for place in (whole, killed)
    )
    assert list(one["step"]) == list(two["step"]) and one["value"].equals(two["value"])
    assert not (killed / "checkpoints").exists()


def test_processes_that_load_images_change_no_weight(tmp_path, monkeypatch):
    model, data = (
        learning.vision(tmp_path / "model"),
        learning.photos(tmp_path / "data"),
    )
    how = {"max_steps": 6, "batch_size": 8, "device": "cpu", "augment": True}
    for processes in (0, 2):
        monkeypatch.setattr(fit, "_loading_processes", lambda *_, n=processes: n)
        layerscope.train(
            model, data, out=tmp_path / str(processes), from_config=True, **how
        )
    assert same_weights(tmp_path / "0", tmp_path / "2")


def test_killed_after_the_last_step_it_takes_no_other(tmp_path):
    files = learning.encoder(tmp_path / "bert"), learning.table(tmp_path / "texts.csv")
    how = {
        "max_steps": 3,
        "scheduler": "constant",
        "learning_rate": 1e-3,
        "device": "cpu",
    }
    for out in (tmp_path / "whole", tmp_path / "out"):
        layerscope.train(*files, out=out, **how)
    (out / "model.safetensors").unlink()
    write_json(
        out / "training.json", read_json(out / "training.json") | {"finished": False}
    )
    layerscope.train(*files, out=out, **how)
    assert same_weights(tmp_path / "whole", out)
    assert layerscope.open_run(out / "history").table()["step"].max() == 3
