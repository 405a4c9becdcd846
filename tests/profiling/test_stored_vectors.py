"""Pooled states of somebody's own, in any kind of file: one table, matched labels, and one line for what is wrong."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_stored_states import LABELS, TEXTS
from typed import refused

import layerscope
from layerscope.inputs.columns import Columns
from layerscope.inputs.state_files import open_states
from layerscope.inputs.states import corpus_of

OPTIONS = {"layers": [0, 8, 16]}
VECTORS = np.random.default_rng(0).normal(np.arange(3)[:, None], size=(60, 3, 8))
VECTORS = VECTORS.astype(np.float32)


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """Return a file of pooled states of 60 samples at three layers."""
    path = tmp_path_factory.mktemp("states") / "states.npy"
    np.save(path, VECTORS)
    return path


def probe(rows, labels):
    """Return the score of a probe of the last layer."""
    return layerscope.probes.linear_probe(VECTORS[rows, 2], np.array(labels)).mean


def test_an_array_gives_the_table_of_its_states(tmp_path, states):
    run = layerscope.profile(
        states=states, labels=LABELS, out=tmp_path / "run", **OPTIONS
    )
    for i, layer in enumerate((0, 8, 16)):
        np.testing.assert_array_equal(run.pooled(layer), VECTORS[:, i])
    assert run.layers == (0, 8, 16)
    rank = float(layerscope.metrics.effective_rank(VECTORS[:, 1]))
    assert run.metric("effective_rank")[8] == pytest.approx(rank, rel=1e-6)
    score = probe(slice(None), LABELS)
    assert run.metric("linear_probe")[16] == pytest.approx(score)
    assert "whole model" not in run.as_dict()["answer"]
    with refused("was made from states of .* without a model: give the model itself"):
        layerscope.truncate(run, layer=8, out=tmp_path / "cut")


def test_a_table_is_matched_by_id_and_in_order(tmp_path, states):
    labels = [5 + i % 2 for i in range(60)]
    ids = [str(i) for i in range(60)]
    table = pd.DataFrame({"id": ids, "label": labels, "text": TEXTS})
    mixed = table.sample(frac=1, random_state=0)
    data = pd.concat([mixed[:30], mixed[:1].assign(id="other"), mixed[30:]])
    run = layerscope.profile(states=states, data=data, out=tmp_path / "run", **OPTIONS)
    plan = run.folder.plan.sort_values("sample")
    assert plan["name"].tolist() == mixed["id"].tolist()
    assert plan["label"].tolist() == mixed["label"].tolist()
    assert run.info["data"]["examples"] == mixed["text"].tolist()[:3]
    np.testing.assert_array_equal(run.pooled(8), VECTORS[mixed.index, 1])
    score = probe(mixed.index, mixed["label"])
    assert run.metric("linear_probe")[16] == pytest.approx(score)
    with refused("column 'id' has no row for 0: give the name of each sample once"):
        layerscope.profile(
            states=states, data=table[1:], out=tmp_path / "other", **OPTIONS
        )


def test_a_table_names_its_rows_or_is_paired_in_order(states):
    opened = open_states(states, OPTIONS["layers"])
    table = pd.DataFrame({"id": [str(i) for i in range(60)], "text": TEXTS})
    table.loc[3, "text"] = " "
    named = corpus_of(opened, table, None, Columns())
    assert named.notes == ("1 row without a text left out: 3",)
    assert named.modality == "text"
    assert corpus_of(opened, None, None, Columns()).modality == "tensor"
    requests = replace(opened, names=tuple(f"s{i}" for i in range(60)))
    unnamed = corpus_of(requests, table[["text"]], None, Columns())
    assert "paired with the states in order, s0 first and s59 last" in unnamed.notes[0]


def test_parquet_of_other_tools_is_refused_with_what_to_save_instead(tmp_path):
    frame = pd.DataFrame({"layer_8": list(VECTORS[:, 1])})
    frame.to_parquet(tmp_path / "states.parquet")
    line = f"^{tmp_path} holds no states: give .safetensors or .npy files, unpacked$"
    with refused(line):
        open_states(tmp_path)
