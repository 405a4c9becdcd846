"""What a run's options leave in it: drawn samples, views, orders, sinks, and lines on what cannot be measured."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from text_runs import TEXTS, profile
from typed import refused

import layerscope
from layerscope import metrics
from layerscope.inputs import open_corpus


def test_views_are_seeded_and_blocks_are_dropped_and_counted(tmp_path):
    texts = tiny.texts(300, longest=6)
    options = {"metrics": "infonce,infonce_bound,dime,lidar", "views": 1}
    one, two = (
        profile(tiny.bert(), tmp_path / name, texts, **options) for name in "ab"
    )
    pd.testing.assert_frame_equal(one.table(), two.table(), check_exact=True)
    table = one.table().set_index("metric")
    for name in ("infonce", "infonce_bound", "dime"):
        assert set(table.loc[name, "n"]) == {256} and set(
            table.loc[name, "n_skipped"]
        ) == {44}
        assert table.loc[name, "variant"].str.startswith("N=256").all()
        assert (table.loc[name, "stderr"] > 0).all(), "of one block too"
    assert set(table.loc["lidar", "n"]) == {300} and set(
        table.loc["lidar", "variant"]
    ) == {"q=2"}
    other = profile(tiny.bert(), tmp_path / "c", texts, **options, seed=1)
    assert not np.allclose(other.metric("infonce"), one.metric("infonce"))
    bound = math.log(256) - one.metric("infonce")
    np.testing.assert_allclose(one.metric("infonce_bound"), bound, rtol=1e-6)


def test_view_samples_limits_who_gets_views(tmp_path):
    run = profile(
        tiny.bert(), tmp_path / "a", views=3, view_samples=12, metrics="lidar"
    )
    plan = run.folder.plan
    assert plan[plan["view"] > 0].groupby("view")["sample"].nunique().to_dict() == {
        1: 12,
        2: 12,
        3: 12,
    }
    assert set(run.table()["variant"]) == {"q=4"} and set(run.table()["n"]) == {12}


def test_orders_of_entropy(tmp_path, run):
    for layer in range(4):
        tokens = metrics.dataset_entropy(run.pooled(layer))
        assert run.metric("dataset_entropy", variant="alpha=1")[layer] == pytest.approx(
            tokens, rel=1e-6
        )
    first, second = (run.metric("prompt_entropy", variant=f"alpha={a}") for a in (1, 2))
    assert (second <= first + 1e-6).all() and not np.allclose(first, second)
    half = profile(
        tiny.llama(), tmp_path / "a", alpha=1.5, metrics="prompt_entropy"
    ).metric("prompt_entropy", variant="alpha=1.5")
    assert (half <= first + 1e-6).all() and (half >= second - 1e-6).all()


def add_a_sink(block, inputs, states):
    """Add a massive activation to the first token."""
    states = states.clone()
    states[:, 0, 3] += 1e5
    return states


def test_sinks_are_left_out_and_counted(tmp_path):
    def sinking():
        model = tiny.gpt2()
        model.transformer.h[0].register_forward_hook(add_a_sink)
        return model

    texts = [text for text in TEXTS if len(text.split()) > 2]
    kept = profile(
        sinking(), tmp_path / "a", texts, metrics="prompt_entropy,dataset_entropy"
    )
    left = profile(
        sinking(),
        tmp_path / "b",
        texts,
        metrics="prompt_entropy,dataset_entropy",
        exclude_sinks=True,
    )
    assert list(left.metric("sinks").round(6)) == [0, 1, 1, 1]
    assert "sinks" not in set(kept.table()["metric"])
    assert np.abs(kept.pooled(2)).max() > 1e3 > np.abs(left.pooled(2)).max()
    assert left.metric("dataset_entropy")[2] > kept.metric("dataset_entropy")[2] + 0.1


def test_half_precision_in_the_store_keeps_the_table(tmp_path, run):
    half = profile(
        tiny.llama(),
        tmp_path / "a",
        pooling="mean",
        store_dtype="float16",
        metrics="cka,dataset_entropy",
    )
    np.testing.assert_allclose(
        half.metric("cka", pooling="mean"), run.metric("cka", pooling="mean"), atol=1e-3
    )
    np.testing.assert_allclose(
        half.metric("dataset_entropy"), run.metric("dataset_entropy"), rtol=1e-3
    )
    shard = half.path / "shards" / "00000.safetensors"
    whole = (
        profile(
            tiny.llama(), tmp_path / "b", pooling="mean", metrics="cka,dataset_entropy"
        ).path
        / "shards"
        / "00000.safetensors"
    )
    assert shard.stat().st_size < 0.65 * whole.stat().st_size
    np.testing.assert_allclose(half.pooled(2), run.pooled(2), rtol=2e-3, atol=2e-3)


def test_metrics_that_cannot_be_had_are_told(tmp_path, capfd):
    profile(tiny.bert(), tmp_path / "b", metrics="curvature,infonce", progress=True)
    told = " ".join(capfd.readouterr().err.split())
    assert (
        "infonce is not measured: it compares views of a sample (give `views=1` or more)"
        in told
    )


def test_a_run_that_has_not_got_to_its_tables(run, tmp_path):
    import shutil

    shutil.copytree(run.path, tmp_path / "run")
    for file in (tmp_path / "run" / "tables").iterdir():
        file.unlink()
    (tmp_path / "run" / "shards" / "00000.safetensors").unlink()
    early = layerscope.open_run(tmp_path / "run")
    with refused("has no table yet: run the same command to resume"):
        early.table()
    with refused("shard 0 of .* cannot be read .*: run the same command"):
        early.pooled(0)


def test_data_in_memory_have_a_folder_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, options = tiny.Plain(), {"metrics": "rankme"}
    one, other = (
        layerscope.profile(model, tiny.rows(12, seed), **options) for seed in (0, 1)
    )
    assert one.path != other.path and one.path.name.startswith("Plain-tensor-")
    again = layerscope.profile(model, tiny.rows(12), **options)
    assert again.path == one.path and len(again.folder.events("resumed")) == 1
    labels = [i % 2 for i in range(12)]
    given = layerscope.profile(model, tiny.rows(12), labels=labels, **options)
    assert given.path != one.path and given.samples()["label"].tolist() == labels
    frame = pd.DataFrame({"text": tiny.texts(3)})
    assert open_corpus(frame, labels=["a", "b", "a"]).labels == ("a", "b", "a")
    for data in ("some.csv", Path("some.csv")):
        with refused("`labels` goes with samples in memory"):
            layerscope.profile(model, data, labels=labels, **options)
    with refused("does not hold real numbers"):
        layerscope.profile(model, np.ones((4, 6), dtype=np.complex64), **options)
    with refused("complex values have no metric"):
        layerscope.metrics.rankme(torch.ones(4, 4, dtype=torch.complex64))
