"""`profile` of data that are never read whole: the numbers of all samples, whatever interrupts the pass."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import tiny
from text_runs import profile
from typed import refused

import layerscope
from layerscope.profiling import pipeline

SAMPLES = 90
KEY = ["metric", "variant", "pooling", "layer", "site", "layer_b", "site_b"]
SUMMED = "prompt_entropy,curvature,norm_mean,dataset_entropy,effective_rank,rankme,anisotropy,alpha_req,nesum"
OF_SAMPLE = "cosine_similarity,angular_distance,cka,nc1,nc2_norms,nc2_angles"
MIXED = "prompt_entropy,curvature,effective_rank,dataset_entropy,cka,infonce,perplexity,linear_probe,nc1,nc2_angles"
SMALL = (
    "from layerscope.profiling import pipeline; pipeline.CHUNK = 20; "
    "from layerscope.cli import main; main()"
)
OPTIONS = {
    "metrics": f"{SUMMED},{OF_SAMPLE}", "alpha": "1,2", "rows": "unit,raw", "cka": "debiased,biased",
    "cosine": "centered,uncentered", "pooling": "mean", "batch_size": 1,
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(pipeline, "CHUNK", 40)


def labelled(n):
    return pd.DataFrame(
        {"text": tiny.texts(n), "label": ["ab"[i % 2] for i in range(n)]}
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "texts.parquet"
    labelled(SAMPLES).to_parquet(path)
    return path


def indexed(run):
    return (
        run.table()
        .fillna({"layer_b": -1, "variant": "", "pooling": "", "site_b": ""})
        .set_index(KEY)
        .sort_index()
    )


def assert_close(run, exact):
    found, wanted = indexed(run), indexed(exact)
    assert found.index.equals(wanted.index)
    for name in ("value", "stderr", "n", "n_skipped"):
        a, b = (table[name].to_numpy(dtype=float) for table in (found, wanted))
        # the error of equal cosines is the root of what rounding left
        np.testing.assert_allclose(
            a, b, rtol=1e-9, atol=1e-8 if name == "stderr" else 1e-11, err_msg=name
        )


def test_sums_over_chunks_are_the_numbers_of_all_samples(data, tmp_path):
    model = tiny.gpt2()
    exact = profile(model, tmp_path / "exact", data, **OPTIONS, samples="all")
    run = profile(model, tmp_path / "run", data, **OPTIONS, keep_states="sample:1000")
    assert_close(run, exact)
    few = profile(model, tmp_path / "few", data, **OPTIONS, keep_states="sample:30")
    table = indexed(few)
    of_all = table["n"] + table["n_skipped"] == SAMPLES
    assert {metric for metric, *_ in table.index[~of_all]} == {*OF_SAMPLE.split(",")}
    pd.testing.assert_frame_equal(table[of_all], indexed(run)[of_all], rtol=1e-12)
    assert len(few.folder.plan) == 30 and few.pooled(2).shape == (30, 32)
    assert "a seeded sample of 30 of them: cosine" in " ".join(few.info["notes"])


def test_no_state_is_kept_where_none_is_asked_for(data, tmp_path):
    kept, run = (
        profile(tiny.bert(), tmp_path / how, data, metrics=MIXED, keep_states=how)
        for how in ("sample:60", "none")
    )
    for shard in run.folder.shards:
        with run.folder.shard(shard) as file:
            assert all(file.get_tensor(key).ndim < 3 for key in set(file.keys()))
    assert set(run.table()["metric"]) == set(kept.table()["metric"])
    pd.testing.assert_series_equal(run.metric("curvature"), kept.metric("curvature"))
    assert len(run.samples()) and run.report().is_file()
    for needs in (
        lambda: run.pooled(1),
        lambda: layerscope.select(run),
        lambda: layerscope.compare([run, kept]),
    ):
        with refused("was made without keeping states: profile again with"):
            needs()
    assert layerscope.select(kept).document()
    text = json.dumps(kept.document().facts)
    assert f"{SAMPLES} samples, of which 60 were kept" in text


def failing():
    yield from tiny.texts(SAMPLES)
    raise OSError("the line is down")


def test_an_iterable_that_raises_is_gone_on_with(tmp_path):
    how = {"metrics": "effective_rank,cka", "keep_states": "sample:20"}
    model = tiny.bert()
    with refused("the line is down"):
        profile(model, tmp_path / "run", failing(), **how)
    run, whole = (
        profile(model, tmp_path / name, iter(tiny.texts(SAMPLES)), **how)
        for name in ("run", "whole")
    )
    pd.testing.assert_frame_equal(run.table(), whole.table(), check_exact=True)
    assert run.info["stream"]["samples"] == SAMPLES


@pytest.mark.parametrize(
    "options, line",
    [
        (
            {"metrics": "linear_probe,lidar"},
            "lidar, linear_probe cannot be computed from sums over samples",
        ),
        (
            {"samples": 50},
            "`samples` is for data that are read at once, and `keep_states='none'`",
        ),
        (
            {"data": "digits"},
            "`keep_states` streams texts, and digits holds image samples",
        ),
    ],
)
def test_wrong_options_are_refused(options, line, data, tmp_path):
    options = {"data": data, "keep_states": "none"} | options
    with refused(line):
        profile(tiny.bert(), tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_samples_with_nothing_to_measure_are_counted(tmp_path):
    texts = tiny.texts(90)
    frame = pd.DataFrame({"text": [*texts[:10], *[""] * 50, *texts[10:]]})
    how = {"metrics": "norm_mean,effective_rank", "keep_states": "sample:10"}
    rows = profile(tiny.gpt2(), tmp_path / "run", frame, **how).table()
    assert set(rows["n"]) == {90} and math.isfinite(rows["value"].sum())
