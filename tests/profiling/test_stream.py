"""`profile` of data that are never read whole: the numbers of all samples, whatever interrupts the pass."""

import json
import math
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from commands import Forks
from hooked import profile

import layerscope
from layerscope.core.errors import LayerscopeError
from layerscope.metrics.moments import ValueSums
from layerscope.profiling import pipeline, summing
from layerscope.profiling.gathered import Gathered, as_first
from layerscope.profiling.streaming import WHOLE, share_anew
from layerscope.runs import Run

SAMPLES = 110
KEY = ["metric", "variant", "pooling", "layer", "site", "layer_b", "site_b"]
KINDS = (
    "prompt_entropy,curvature,norm_mean,dataset_entropy,effective_rank,rankme,anisotropy,alpha_req,nesum,"
    "cosine_similarity,angular_distance,cka,nc1,nc2_norms,nc2_angles"
)
MIXED = "prompt_entropy,curvature,effective_rank,dataset_entropy,cka,infonce,perplexity,linear_probe,nc1,nc2_angles"
COLLAPSE = "nc1,nc2_norms,nc2_angles"
SMALL = (
    "from layerscope.profiling import pipeline, summing; pipeline.CHUNK = 20; from layerscope.cli import main; main()"
)
OPTIONS = {
    "metrics": KINDS, "alpha": "1,2", "rows": "unit,raw,centered", "cka": "debiased,biased",
    "cosine": "centered,uncentered", "pooling": "mean,last", "batch_size": 1,
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "CHUNK", 40)


def labelled(n: int) -> pd.DataFrame:
    return pd.DataFrame({"text": tiny.texts(n), "label": ["ab"[i % 2] for i in range(n)]})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "texts.parquet"
    labelled(SAMPLES).to_parquet(path)
    return path


def indexed(run: Run) -> pd.DataFrame:
    return run.table().fillna({"layer_b": -1, "variant": "", "pooling": "", "site_b": ""}).set_index(KEY).sort_index()


def assert_close(run: Run, exact: Run) -> None:
    found, wanted = indexed(run), indexed(exact)
    assert found.index.equals(wanted.index)
    for name in ("value", "stderr", "n", "n_skipped"):
        a, b = (table[name].to_numpy(dtype=float) for table in (found, wanted))
        # the error of equal cosines is the root of what rounding left
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-8 if name == "stderr" else 1e-11, err_msg=name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a language model and labelled texts, one of which is empty."""
    folder = tmp_path_factory.mktemp("given")
    tiny.saved(tiny.llama(), folder / "llama", special=False)
    labelled(SAMPLES).to_csv(folder / "texts.csv", index=False)
    return folder


def asked(folder: Path, out: Path, *more: str) -> list[str]:
    return ["profile", str(folder / "llama"), "--data", str(folder / "texts.csv"), "--keep-states", "sample:60",
            "--metrics", MIXED, "--out", str(out), *more]  # fmt: skip


@pytest.fixture(scope="module")
def whole(folder: Path, forks: Forks) -> Path:
    """The run of one process that nothing disturbed."""
    assert forks.run(*asked(folder, folder / "whole"), script=SMALL).complaint() is None
    return folder / "whole"


def tables(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((run / "tables").iterdir())}


def test_killed_at_any_moment_it_ends_with_the_same_bytes(folder: Path, whole: Path, forks: Forks, tmp_path: Path):
    rng, out, moments = random.Random(time.time_ns()), tmp_path / "run", []
    for _ in range(3):
        running = forks.start(*asked(folder, out), script=SMALL)
        running.until(lambda: (out / "stream").is_dir() or (out / "run.json").is_file())
        time.sleep(rng.random() * 0.7)
        running.kill()
        moments.append(sorted(path.name for path in out.iterdir()))
        running.wait()
    end = forks.run(*asked(folder, out), script=SMALL)
    assert end.complaint() is None, (end, moments)
    assert tables(out) == tables(whole), moments
    assert not (out / "stream").exists()
    assert (out / "plan.parquet").read_bytes() == (whole / "plan.parquet").read_bytes()


def test_two_processes_make_the_run_of_one(folder: Path, whole: Path, forks: Forks, tmp_path: Path):
    out = tmp_path / "run"
    both = forks.together(*asked(folder, out), script=SMALL)
    both[0].until(lambda: len(list((out / "stream").glob("*.safetensors"))) == 2, 0.0005)
    both[1].kill()
    both[1].wait()
    assert both[0].wait().line.startswith("layerscope: process 1 on ")
    one = forks.start(*asked(folder, out), script=SMALL)
    alone = out / "stream" / "0-of-1.safetensors"
    one.until(lambda: alone.is_file() or (out / "run.json").is_file(), 0.0005)  # it may be fast
    one.kill()
    one.wait()
    ends = [each.wait() for each in forks.together(*asked(folder, out), script=SMALL)]
    assert [end.complaint() for end in ends] == [None, None]
    assert_close(layerscope.open_run(out), layerscope.open_run(whole))
    assert layerscope.open_run(out).folder.plan.equals(layerscope.open_run(whole).folder.plan)


def pass_of(chunks: list[int], **facts: Any) -> Gathered:
    """Return what a process has that gathered some chunks of ten texts, each of its own value."""
    gathered = Gathered({"data": "texts"}, **facts)
    for number in chunks:
        own = ValueSums.of(torch.arange(number * 10.0, number * 10 + 10)[None])
        gathered.sums["tokens x.raw"] = gathered.sums["tokens x.raw"] + own if gathered.sums else own
        gathered.seen += 10
    return gathered


@pytest.mark.parametrize("killed", [None, "written", "half removed", "removed"])
def test_parts_of_another_number_of_processes_are_the_first_part(killed: str | None, tmp_path: Path):
    begun = {0: [0, 3, 6], 1: [1], 2: [2, 5]}  # chunks by process, of three
    for rank, chunks in begun.items():
        pass_of(chunks, next=3 * len(chunks)).save(tmp_path / f"{rank}-of-3.safetensors")
    files, two = sorted(tmp_path.iterdir()), [tmp_path / f"{rank}-of-2.safetensors" for rank in range(2)]
    if killed:
        as_first({file: Gathered.load(file) for file in files}, 9).save(tmp_path / WHOLE)
        for file in files[: {"written": 0, "half removed": 2, "removed": 3}[killed]]:
            file.unlink()
    share_anew(sorted(tmp_path.iterdir()), two, 9)
    assert [path.name for path in tmp_path.iterdir()] == ["0-of-2.safetensors"]
    found = Gathered.load(two[0])
    assert (found.seen, found.before, found.next, found.done) == (60, 4, 4, [5, 6])
    values = [number * 10.0 + i for chunks in begun.values() for number in chunks for i in range(10)]
    assert found.sums["tokens x.raw"].mean.item() == pytest.approx(np.mean(values), rel=1e-12)
    assert found.sums["tokens x.raw"].stderr.item() == pytest.approx(np.std(values, ddof=1) / 60**0.5, rel=1e-12)
    assert [number for number in range(9) if not found.has(number)] == [4, 7, 8]
    # two go on: one has gathered chunk 4, the other nothing, and one alone takes over
    found.next = 6
    found.save(two[0])
    share_anew(two[:1], [tmp_path / "0-of-1.safetensors"], 9)
    last = Gathered.load(tmp_path / "0-of-1.safetensors")
    assert [number for number in range(9) if not last.has(number)] == [7, 8] and last.begin().before == last.before


@pytest.mark.parametrize("make", [tiny.bert, tiny.gpt2])
def test_sums_over_chunks_are_the_numbers_of_all_samples(make: Any, data: Path, tmp_path: Path):
    model = make()
    exact = profile(model, data, tmp_path / "exact", **OPTIONS, samples="all")
    run = profile(model, data, tmp_path / "run", **OPTIONS, keep_states="sample:1000")
    assert_close(run, exact)
    if model.config.model_type == "bert":
        return
    few = profile(model, data, tmp_path / "few", **OPTIONS, keep_states="sample:30")
    table = indexed(few)
    of_all = table["n"] + table["n_skipped"] == SAMPLES
    small = {(metric, variant) for metric, variant, *_ in table.index[~of_all]}
    assert small == {
        *(("dataset_entropy", f"alpha={alpha},rows=centered") for alpha in ("1", "2")),
        ("cosine_similarity", "centered"), ("angular_distance", "centered"),
    }  # fmt: skip
    pd.testing.assert_frame_equal(table[of_all], indexed(run)[of_all], rtol=1e-12)
    assert len(few.folder.plan) == 30 and few.pooled(2).shape == (30, 32)


def test_other_data_are_refused_and_a_finished_run_is_opened(folder: Path, whole: Path, forks: Forks, tmp_path: Path):
    again = forks.run(*asked(folder, whole), script=SMALL)
    assert again.complaint() is None and "forward" not in again.err
    other = tmp_path / "given"
    shutil.copytree(folder / "llama", other / "llama")
    labelled(SAMPLES + 1).to_csv(other / "texts.csv", index=False)
    assert "holds another run (data contents" in forks.run(*asked(other, whole), script=SMALL).line
    assert "holds another run (seed: 0 there, 1 here)" in forks.run(*asked(folder, whole, "--seed", "1")).line
    out = tmp_path / "run"
    running = forks.start(*asked(folder, out), script=SMALL)
    running.until(lambda: (out / "stream").is_dir() and any((out / "stream").glob("*.safetensors")), 0.0005)
    running.kill()
    running.wait()
    assert "holds another run (data contents" in forks.run(*asked(other, out), script=SMALL).line


def test_no_state_is_kept_where_none_is_asked_for(data: Path, tmp_path: Path):
    model = tiny.bert()
    kept = profile(model, data, tmp_path / "kept", metrics=MIXED, keep_states="sample:60")
    run = profile(model, data, tmp_path / "none", metrics=MIXED, keep_states="none")
    for shard in run.folder.shards:
        with run.folder.shard(shard) as file:
            assert all(file.get_tensor(key).ndim < 3 for key in set(file.keys()))
    assert set(run.table()["metric"]) == set(kept.table()["metric"])
    of_all = run.metric("curvature"), kept.metric("curvature")
    pd.testing.assert_series_equal(*of_all)
    assert len(run.samples()) and run.report().is_file()
    for needs in (lambda: run.pooled(1), lambda: layerscope.select(run), lambda: layerscope.compare([run, kept])):
        with pytest.raises(LayerscopeError, match="was made without keeping states: profile again with"):
            needs()
    assert layerscope.select(kept, progress=False).document()
    text = json.dumps(kept.document().facts)
    assert f"{SAMPLES} samples, of which 60 were kept" in text


def test_it_ends_when_errors_are_small_enough(data: Path, tmp_path: Path):
    model, options = tiny.bert(), {"metrics": "norm_mean,curvature,linear_probe", "keep_states": "none"}
    run = profile(model, data, tmp_path / "late", **options, until_stderr=1e-9)
    assert run.info["stream"]["samples"] == SAMPLES
    assert any(note.startswith("the pass took all data: standard errors are at most") for note in run.info["notes"])
    early = profile(model, data, tmp_path / "early", **options, until_stderr=1.3 * largest_error(run))
    read = int(early.info["stream"]["samples"])
    rows = early.table()[early.table()["metric"] != "linear_probe"].dropna(subset="stderr")
    assert read in (40, 80) and {*(rows["n"] + rows["n_skipped"])} == {read}
    assert 0 < largest_error(early) <= 1.3 * largest_error(run)
    assert any(
        note.startswith(f"the pass ended after the first {read} of {SAMPLES} rows") for note in early.info["notes"]
    )


def largest_error(run: Run) -> float:
    rows = run.table()[lambda table: table["metric"].isin(["norm_mean", "curvature"])]
    return max(own["stderr"].max() / (own["value"].max() - own["value"].min()) for _, own in rows.groupby("metric"))


def failing(n: int) -> Iterator[str]:
    yield from tiny.texts(n)
    raise OSError("the line is down")


def test_an_iterable_that_raises_is_gone_on_with(data: Path, tmp_path: Path):
    model, options = tiny.bert(), {"metrics": "curvature,effective_rank,cka", "keep_states": "sample:20"}
    with pytest.raises(LayerscopeError, match="the line is down"):
        profile(model, failing(90), tmp_path / "run", **options)
    run = profile(model, iter(tiny.texts(SAMPLES)), tmp_path / "run", **options)
    whole = profile(model, iter(tiny.texts(SAMPLES)), tmp_path / "whole", **options)
    pd.testing.assert_frame_equal(run.table(), whole.table(), check_exact=True)
    assert run.info["stream"]["samples"] == SAMPLES


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"keep_states": "sample:0"},
            "keep_states is 'sample:0': give all, none or sample:N, N a whole number of",
        ),
        ({"keep_states": "some"}, "keep_states is 'some': give all, none or sample:N"),
        (
            {"keep_states": "none", "metrics": "linear_probe,lidar"},
            "lidar, linear_probe cannot be computed from sums over samples",
        ),
        (
            {"keep_states": "none", "samples": 50},
            "`samples` is for data that are read at once, and `keep_states='none'`",
        ),
        ({"keep_states": "none", "chunk": 8}, "`chunk` is for data that are read at once"),
        ({"until_stderr": 0.1}, "`until_stderr` ends a stream early: give `keep_states='none'` as well"),
        ({"keep_states": "none", "until_stderr": 2.0}, "until_stderr is 2: give a number between 0 and 1"),
        ({"keep_states": "none", "metrics": "nc1,nc3"}, "'nc3' is measured in training alone, by `layerscope train`"),
        (
            {"keep_states": "none", "until_stderr": 0.1, "metrics": "effective_rank"},
            "`until_stderr` watches metrics of tokens, such as curvature: include one",
        ),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], line: str, data: Path, tmp_path: Path):
    with pytest.raises(LayerscopeError, match=line):
        profile(tiny.bert(), data, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_only_texts_are_streamed(tmp_path: Path):
    with pytest.raises(LayerscopeError, match="`keep_states` streams texts, and digits holds image samples"):
        profile(tiny.bert(), "digits", tmp_path / "run", keep_states="none")


def test_samples_with_nothing_to_measure_are_counted(tmp_path: Path):
    texts = tiny.texts(90)
    frame = pd.DataFrame({"text": [*texts[:10], *[""] * 50, *texts[10:]]})
    run = profile(tiny.gpt2(), frame, tmp_path / "run", metrics="norm_mean,effective_rank", keep_states="sample:10")
    rows = run.table()
    assert set(rows["n"]) == {90} and math.isfinite(rows["value"].sum())


def test_similarities_that_outgrow_memory_are_of_the_kept_samples(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(summing, "MOST_BYTES", 1000)
    run = profile(tiny.bert(), data, tmp_path / "run", metrics="curvature,cka", keep_states="sample:20")
    counts = run.table().assign(total=lambda rows: rows["n"] + rows["n_skipped"]).groupby("metric")["total"].unique()
    assert (list(counts["cka"]), list(counts["curvature"])) == ([20], [SAMPLES])
    assert "a seeded sample of 20 of them: CKA" in run.info["notes"]
    with pytest.raises(LayerscopeError, match="cka cannot be computed from sums over samples"):
        profile(tiny.bert(), data, tmp_path / "none", metrics="cka", keep_states="none")


def sorted_by_class(classes: int) -> list[dict[str, Any]]:
    """Return rows whose labels come one after the other, the last of them after the first chunks."""
    return [{"text": text, "label": i * classes // SAMPLES} for i, text in enumerate(tiny.texts(SAMPLES))]


def test_classes_may_come_at_any_time(tmp_path: Path):
    options = {"metrics": COLLAPSE, "batch_size": 1}
    exact = profile(tiny.gpt2(), pd.DataFrame(sorted_by_class(9)), tmp_path / "exact", **options, samples="all")
    run = profile(tiny.gpt2(), iter(sorted_by_class(9)), tmp_path / "run", **options, keep_states="sample:5")
    assert_close(run, exact)
    assert set(run.table()["n"]) == {SAMPLES} and len(run.table()) == 3 * len(run.layers)


def test_too_many_classes_are_of_the_kept_samples_and_a_single_one_of_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    model, options = tiny.gpt2(), {"metrics": f"norm_mean,{COLLAPSE}", "keep_states": "sample:60"}
    layers = model.config.num_hidden_layers + 1
    monkeypatch.setattr(summing, "MOST_BYTES", 8 * layers * 32 * (32 + 2 * 4))  # room for four classes
    for classes, n in ((4, SAMPLES), (5, 60)):
        run = profile(model, iter(sorted_by_class(classes)), tmp_path / str(classes), **options)
        counts = run.table().groupby("metric")["n"].unique()
        assert [list(counts[name]) for name in ("nc1", "norm_mean")] == [[n], [SAMPLES]]
        line = "NC1, NC2 (norms), NC2 (angles): of the kept samples, as there are too many classes to sum each"
        assert (line in run.info["notes"]) is (classes == 5)
    run = profile(model, iter(sorted_by_class(1)), tmp_path / "one", **options)
    assert set(run.table()["metric"]) == {"norm_mean", "sinks"}
    assert any(note.endswith("not measured, as the data have no two labels") for note in run.info["notes"])
    with pytest.raises(LayerscopeError, match="nc1 is not measured: all samples have one label"):
        profile(model, pd.DataFrame(sorted_by_class(1)), tmp_path / "none", metrics="nc1")
