"""A streamed pass that is killed, shared by processes, or started again: the same tables, or one line why not."""

import random
import shutil
import time

import numpy as np
import pytest
import tiny
import torch
from test_stream import MIXED, SAMPLES, SMALL, assert_close, labelled
from typed import refused

import layerscope
from layerscope.metrics.moments import ValueSums
from layerscope.profiling.stream_sums import StreamSums


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a language model and labelled texts, one of which is empty."""
    folder = tmp_path_factory.mktemp("given")
    tiny.saved(tiny.llama(), folder / "llama")
    labelled(SAMPLES).to_csv(folder / "texts.csv", index=False)
    return folder


def command(folder, out, *more):
    how = f"--keep-states sample:60 --metrics {MIXED}".split()
    data = folder / "texts.csv"
    return ["profile", folder / "llama", "--data", data, "--out", out, *how, *more]


@pytest.fixture(scope="module")
def streamed(forks):
    """Return a function that streams texts in small chunks, in a process of its own, and returns how it ended."""

    def call(folder, out, *more):
        return forks.run(*command(folder, out, *more), script=SMALL)

    return call


@pytest.fixture(scope="module")
def whole(folder, streamed):
    """The run of one process that nothing disturbed."""
    assert streamed(folder, folder / "whole").complaint() is None
    return folder / "whole"


def tables(run):
    return {path.name: path.read_bytes() for path in sorted((run / "tables").iterdir())}


def test_killed_at_any_moment_it_ends_with_the_same_bytes(
    folder, whole, forks, streamed, tmp_path
):
    rng, out, moments = random.Random(time.time_ns()), tmp_path / "run", []
    for _ in range(3):
        forks.killed(
            *command(folder, out),
            script=SMALL,
            when=lambda: (out / "stream").is_dir() or (out / "run.json").is_file(),
            delay=rng.random() * 0.7,
        )
        moments.append(sorted(path.name for path in out.iterdir()))
    end = streamed(folder, out)
    assert end.complaint() is None, (end, moments)
    assert tables(out) == tables(whole), moments
    assert not (out / "stream").exists()
    assert (out / "plan.parquet").read_bytes() == (whole / "plan.parquet").read_bytes()


def test_a_run_that_was_killed_before_its_end_is_unfinished_to_those_that_read_it(
    folder, forks, tmp_path
):
    out = tmp_path / "run"
    forks.killed(*command(folder, out), script=SMALL, when=(out / ".lock").is_file)
    assert not (out / "run.json").exists()
    line = "is an unfinished run: repeat the command that began it to finish it$"
    for read in (layerscope.select, layerscope.report, layerscope.open_run):
        with refused(line):
            read(out)


def test_two_processes_make_the_run_of_one(folder, whole, forks, streamed, tmp_path):
    out = tmp_path / "run"
    both = forks.together(*command(folder, out), script=SMALL)
    both[0].until(lambda: len(list((out / "stream").glob("*.npz"))) == 2, 0.0005)
    both[1].kill()
    both[1].wait()
    assert both[0].wait().line.startswith("layerscope: process 1 on ")
    line = "was begun by 2 processes, and now there are 1: start 2, or choose another folder"
    assert line in streamed(folder, out).line
    ends = [each.wait() for each in forks.together(*command(folder, out), script=SMALL)]
    assert [end.complaint() for end in ends] == [None, None]
    two, one = layerscope.open_run(out), layerscope.open_run(whole)
    assert_close(two, one)
    assert two.folder.plan.equals(one.folder.plan)


def test_a_damaged_part_is_not_gone_on_from(tmp_path):
    part = tmp_path / "0-of-1.npz"
    totals = StreamSums({"data": "texts"})
    totals.sums["tokens x.raw"] = ValueSums.of(torch.arange(20.0)[None])
    totals.save(part)
    mean, other = (np.float64(value).tobytes() for value in (9.5, 8.5))
    data = part.read_bytes()
    assert data.count(mean) == 1
    part.write_bytes(data.replace(mean, other))
    with refused("is not the file that layerscope wrote"):
        StreamSums.load(part)


def test_other_data_are_refused_and_a_finished_run_is_opened(
    folder, whole, forks, streamed, tmp_path
):
    again = streamed(folder, whole)
    assert again.complaint() is None and "forward" not in again.err
    seed = streamed(folder, whole, "--seed", 1)
    assert "holds another run (seed: 0 there, 1 here)" in seed.line
    other, out = tmp_path / "given", tmp_path / "run"
    shutil.copytree(folder / "llama", other / "llama")
    labelled(SAMPLES + 1).to_csv(other / "texts.csv", index=False)

    def has_begun():
        return any(out.glob("stream/*.npz"))

    forks.killed(*command(folder, out), script=SMALL, when=has_begun)
    for made in (whole, out):
        assert "holds another run (data contents" in streamed(other, made).line
