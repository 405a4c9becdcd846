import shutil
from pathlib import Path

import pytest

from layerscope.runs import open_run
from layerscope.runs.details import run_names


@pytest.fixture
def named(written, by_layer, tmp_path):
    """Return a function that writes a run of a model and data into a folder."""

    def write(model, data, folder):
        run = written(by_layer("curvature", [1.0, 2.0]), model=model, data=data)
        target = tmp_path / "named" / folder
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(run.path, target)
        return open_run(target)

    return write


def test_one_run_is_called_as_its_model(named):
    assert run_names([named("bert", "news", "a")]) == ["bert"]
    assert run_names([]) == []


def test_models_on_the_same_data(named):
    assert run_names([named("bert", "news", "a"), named("gpt", "news", "b")]) == ["bert", "gpt"]


def test_data_that_differ_are_named(named):
    runs = [named("bert", "news", "a"), named("bert", "mail", "b"), named("gpt", "mail", "c")]
    assert run_names(runs) == ["bert on news", "bert on mail", "gpt on mail"]


def test_only_runs_that_share_a_name_are_told_by_their_folder(named):
    runs = [named("bert", "news", "a"), named("bert", "news", "b"), named("gpt", "news", "c")]
    assert run_names(runs) == ["bert (a)", "bert (b)", "gpt"]


def test_folders_of_one_name_are_told_by_their_path(named):
    runs = [
        named("bert", "news", "x/run"),
        named("bert", "news", "y/run"),
        named("bert", "news", "z"),
    ]
    assert run_names(runs) == [f"bert ({runs[0].path})", f"bert ({runs[1].path})", "bert (z)"]


def test_a_model_that_is_called_like_a_marked_name(named):
    runs = [named("bert", "news", "a"), named("bert", "news", "b"), named("bert (a)", "news", "c")]
    assert len(set(run_names(runs))) == 3


def test_the_folder_one_stands_in_has_a_name(named, monkeypatch):
    first, second = named("bert", "news", "a"), named("bert", "news", "b")
    monkeypatch.chdir(first.path)
    assert run_names([open_run(Path()), second]) == ["bert (a)", "bert (b)"]
