"""What the recipes in `examples/` share: a table by layer, objective and seed, as the histories have it."""

import sys
from argparse import Namespace
from pathlib import Path

import learning
import pytest

import layerscope

sys.path.append(str(Path(__file__).parents[2] / "examples"))
import grid


@pytest.fixture(autouse=True)
def forked(forks, monkeypatch):
    """Type the recipe's commands into forks of a warm process."""

    def run(command, **_):
        assert command[:3] == [sys.executable, "-m", "layerscope"]
        ended = forks.run(*command[3:])
        return Namespace(returncode=ended.status, stderr=ended.err)

    monkeypatch.setattr(grid, "subprocess", Namespace(run=run))


def test_a_grid_of_trainings_is_a_table_of_their_histories(tmp_path):
    model = str(learning.encoder(tmp_path / "model"))
    data = str(learning.table(tmp_path / "texts.csv"))
    given = Namespace(out=tmp_path / "runs", seeds=1, jobs=1)
    options = ["--max-steps", "2", "--batch-size", "4", "--device", "cpu"]
    command = [model, "--train", data, *options]
    objectives = {name: ["--objective", name] for name in ("standard", "aligned")}
    table = grid.run(given, command, objectives, "layer_accuracy")
    assert list(table.columns) == [("standard", 0), ("aligned", 0)]
    assert list(table.index) == [1, 2, 3]
    for name in objectives:
        history = layerscope.open_run(given.out / f"{name}-0" / "history")
        assert history.steps[-1] == 2
        accuracy = history.metric("layer_accuracy")
        assert table[name, 0].tolist() == accuracy.loc[1:].tolist()
