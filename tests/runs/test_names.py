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


@pytest.mark.parametrize(
    "runs, names",
    [
        ([], []),
        (["bert news a"], ["bert"]),
        (["bert news a", "gpt news b"], ["bert", "gpt"]),
        (["bert news a", "bert mail b"], ["bert on news", "bert on mail"]),
        (["bert news a", "bert news b", "gpt news c"], ["bert (a)", "bert (b)", "gpt"]),
    ],
)
def test_runs_have_the_shortest_names_that_tell_them_apart(named, runs, names):
    assert run_names([named(*run.split()) for run in runs]) == names


def test_folders_of_one_name_are_told_by_their_path(named):
    runs = [
        named("bert", "news", "x/run"),
        named("bert", "news", "y/run"),
        named("bert", "news", "z"),
    ]
    assert run_names(runs) == [
        f"bert ({runs[0].path})",
        f"bert ({runs[1].path})",
        "bert (z)",
    ]


def test_a_model_that_is_called_like_a_marked_name(named):
    runs = [
        named("bert", "news", "a"),
        named("bert", "news", "b"),
        named("bert (a)", "news", "c"),
    ]
    assert len(set(run_names(runs))) == 3


def test_the_folder_one_stands_in_has_a_name(named, monkeypatch):
    first, second = named("bert", "news", "a"), named("bert", "news", "b")
    monkeypatch.chdir(first.path)
    assert run_names([open_run(Path()), second]) == ["bert (a)", "bert (b)"]
