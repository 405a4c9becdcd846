"""Tiny models and good data, and a command that is to be refused in one line and to leave nothing behind."""

import shutil

import pandas as pd
import pytest
import tiny

import layerscope


@pytest.fixture(autouse=True)
def no_hub(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory):
    return tiny.saved(tiny.gpt2(), tmp_path_factory.mktemp("models") / "tiny-gpt2")


@pytest.fixture(scope="session")
def vit(tmp_path_factory):
    return tiny.vit(tmp_path_factory.mktemp("models") / "tiny-vit")


@pytest.fixture(scope="session")
def wav2vec2(tmp_path_factory):
    return tiny.wav2vec2(tmp_path_factory.mktemp("models") / "tiny-wav2vec2")


@pytest.fixture(scope="session")
def reviews(tmp_path_factory):
    """A good table: 30 texts of three teams."""
    path = tmp_path_factory.mktemp("data") / "reviews.csv"
    teams = [f"t{i % 3}" for i in range(30)]
    pd.DataFrame({"text": tiny.texts(30), "team": teams}).to_csv(path, index=False)
    return path


@pytest.fixture
def told(cli, tmp_path):
    """Return a function that profiles what can be profiled, and returns the lines told about what was left out."""

    def call(model, data, *options):
        printed = cli(
            "profile", model, "--data", data, "--out", tmp_path / "run", *options
        )
        assert printed.status == 0, printed.err
        assert "Traceback" not in printed.err and "layerscope: " not in printed.err
        return [
            line for line in printed.err.splitlines() if "MB of states in" not in line
        ]

    return call


@pytest.fixture
def unprofiled(refusal, tmp_path):
    """Return a function that profiles what cannot be profiled, and returns the line that says why."""

    def call(model, data, *options):
        place = tmp_path / "run"
        return refusal("profile", model, "--data", data, "--out", place, *options)

    return call


@pytest.fixture(scope="module")
def command(bert, reviews):
    """A short run of four shards."""
    options = ["--metrics", "curvature,cka", "--batch-size", 2, "--views", 0]
    return ["profile", bert, "--data", reviews, *options]


@pytest.fixture(scope="module")
def finished(command, tmp_path_factory):
    """The folder of that run; `command` on it must be typed in the same words."""
    out = tmp_path_factory.mktemp("finished") / "run"
    how = {"metrics": "curvature,cka", "batch_size": 2, "views": 0}
    return layerscope.profile(str(command[1]), command[3], out=out, **how).path


@pytest.fixture
def run(finished, tmp_path):
    """A finished run of one's own, to be damaged."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"
