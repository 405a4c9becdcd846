"""A training that is killed goes on where it was, to the same weights."""

import signal

import learning
import pytest
from safetensors.torch import load_file
from trainers import same

import layerscope
from layerscope.core.files import read_json, write_json
from layerscope.training import fit

CPU = {"device": "cpu"}
COMMON = "--max-steps 14 --eval-every 4 --batch-size 8 --learning-rate 1e-3 --device cpu --from-config --augment"


def same_weights(one, two):
    return same(*(load_file(out / "model.safetensors") for out in (one, two)))


@pytest.fixture
def pictures(tmp_path):
    """Return a folder with the config of a vision model, and one of images."""
    model = learning.vision(tmp_path / "model")
    return model, learning.photos(tmp_path / "data")


def test_a_killed_training_ends_with_the_weights_of_an_undisturbed_one(
    forks, pictures, tmp_path
):
    model, data = pictures
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
    one, two = (layerscope.open_run(out / "history") for out in (whole, killed))
    columns = ["step", "value"]
    assert one.table()[columns].equals(two.table()[columns])
    assert not (killed / "checkpoints").exists()


def test_processes_that_load_images_change_no_weight(pictures, tmp_path, monkeypatch):
    how = {"max_steps": 6, "batch_size": 8, "augment": True, "from_config": True} | CPU
    for processes in (0, 2):
        monkeypatch.setattr(fit, "_loading_processes", lambda *_, n=processes: n)
        layerscope.train(*pictures, out=tmp_path / str(processes), **how)
    assert same_weights(tmp_path / "0", tmp_path / "2")


def test_killed_after_the_last_step_it_takes_no_other(tmp_path):
    files = learning.encoder(tmp_path / "bert"), learning.table(tmp_path / "texts.csv")
    how = {"max_steps": 3, "scheduler": "constant", "learning_rate": 1e-3} | CPU
    for out in (tmp_path / "whole", tmp_path / "out"):
        layerscope.train(*files, out=out, **how)
    (out / "model.safetensors").unlink()
    about = out / "training.json"
    write_json(about, read_json(about) | {"finished": False})
    layerscope.train(*files, out=out, **how)
    assert same_weights(tmp_path / "whole", out)
    assert layerscope.open_run(out / "history").table()["step"].max() == 3
