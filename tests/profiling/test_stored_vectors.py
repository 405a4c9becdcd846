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


@pytest.fixture
def vectors():
    return (
        np.random.default_rng(0)
        .normal(np.arange(3)[:, None], size=(60, 3, 8))
        .astype(np.float32)
    )


def as_npy(vectors, folder):
    np.save(folder / "states.npy", vectors)
    return folder / "states.npy"


def test_an_array_gives_the_table_of_its_states(tmp_path, vectors):
    path = as_npy(vectors, tmp_path)
    run = layerscope.profile(
        states=path, labels=LABELS, out=tmp_path / "run", **OPTIONS
    )
    for i, layer in enumerate((0, 8, 16)):
        np.testing.assert_array_equal(run.pooled(layer), vectors[:, i])
    assert run.layers == (0, 8, 16)
    known = layerscope.metrics.effective_rank(vectors[:, 1])
    assert float(run.metric("effective_rank").loc[8]) == pytest.approx(
        float(known), rel=1e-6
    )
    score = layerscope.probes.linear_probe(vectors[:, 2], np.array(LABELS))
    assert float(run.metric("linear_probe").loc[16]) == pytest.approx(score.mean)
    assert "whole model" not in run.as_dict()["answer"]


def test_a_table_is_matched_by_id_and_in_order(tmp_path, vectors):
    (tmp_path / "in").mkdir()
    path = as_npy(vectors, tmp_path / "in")
    table = pd.DataFrame(
        {"id": [str(i) for i in range(60)], "label": range(60), "text": TEXTS}
    )
    table["label"] = table["label"] % 2 + 5
    mixed = table.sample(frac=1, random_state=0)
    data = pd.concat([mixed[:30], mixed[:1].assign(id="other"), mixed[30:]])
    run = layerscope.profile(states=path, data=data, out=tmp_path / "run", **OPTIONS)
    plan = run.folder.plan.sort_values("sample")
    assert (
        plan["name"].tolist() == mixed["id"].tolist()
        and plan["label"].tolist() == mixed["label"].tolist()
    )
    assert run.info["data"]["examples"] == mixed["text"].tolist()[:3]
    np.testing.assert_array_equal(run.pooled(8), vectors[mixed.index, 1])
    score = layerscope.probes.linear_probe(
        vectors[mixed.index, 2], mixed["label"].to_numpy()
    )
    assert float(run.metric("linear_probe").loc[16]) == pytest.approx(score.mean)
    mixed.iloc[3, 2], opened = " ", open_states(path, OPTIONS["layers"])
    named = corpus_of(opened, mixed, None, Columns())
    assert named.notes == ("1 row without a text left out: 3",)
    requests = replace(opened, names=tuple(f"s{i}" for i in range(60)))
    unnamed = corpus_of(requests, table.drop(columns="id"), None, Columns())
    assert "paired with the states in order, s0 first and s59 last" in unnamed.notes[0]
    with refused("column 'id' has no row for 0: give the name of each sample once"):
        layerscope.profile(
            states=path, data=table[1:], out=tmp_path / "other", **OPTIONS
        )


def test_parquet_of_other_tools_is_refused_with_what_to_save_instead(tmp_path, vectors):
    pd.DataFrame({"layer_8": list(vectors[:, 1])}).to_parquet(
        tmp_path / "states.parquet"
    )
    with refused() as error:
        open_states(tmp_path)
    line = f"{tmp_path} holds no states: give .safetensors or .npy files, unpacked"
    assert str(error.value) == line


def test_verbs_that_need_the_model_say_that_there_is_none(tmp_path, vectors):
    path = as_npy(vectors, tmp_path)
    run = layerscope.profile(
        states=path, labels=LABELS, out=tmp_path / "r" / "run", **OPTIONS
    )
    with refused("was made from states of .* without a model: give the model itself"):
        layerscope.truncate(run, layer=8, out=tmp_path / "cut")
