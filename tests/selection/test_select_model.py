"""`select MODEL --data FILE`: what it needs is run first, into a folder that it names."""

import numpy as np
import pandas as pd
import pytest
import tiny

import layerscope


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny.saved(tiny.bert(), tmp_path / "tiny-bert")
    texts = tiny.texts(120, seed=6)
    teams = np.where([text > "w7" for text in texts], "a", "b")
    frame = pd.DataFrame({"body": texts, "team": teams})
    frame.to_csv(tmp_path / "tickets.csv", index=False)
    return tmp_path


def test_a_model_is_profiled_and_then_a_layer_is_chosen(place, cli):
    columns = ("--text-column", "body", "--label-column", "team", "--no-cost")
    words = ("select", "tiny-bert", "--data", "tickets.csv", *columns)
    done = cli(*words, "--out", "choice")
    assert done.status == 0 and "run: runs/tiny-bert-tickets" in done.err
    run = layerscope.open_run("runs/tiny-bert-tickets")
    chosen = layerscope.select(run, cost=False)
    kept = layerscope.open_selection("choice")
    assert (kept.layer, kept.baseline.score) == (chosen.layer, chosen.baseline.score)
    again = cli(*words)
    assert again.out.splitlines()[:8] == done.out.splitlines()[:8]
    dropped = cli(*words[:-1], "--drop", "1")
    assert dropped.status == 0 and "drop block" in dropped.out


def test_a_model_needs_data(cli):
    line = cli("select", "minilm").line
    assert line.endswith("to choose a layer of a model give --data, too")
