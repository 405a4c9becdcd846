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
    return [
        "profile",
        str(folder / "llama"),
        "--data",
        str(folder / "texts.csv"),
        "--keep-states",
        "sample:60",
        "--metrics",
        MIXED,
        "--out",
        str(out),
        *more,
    ]


@pytest.fixture(scope="module")
def whole(folder, forks):
    """The run of one process that nothing disturbed."""
    assert (
        forks.run(*command(folder, folder / "whole"), script=SMALL).complaint() is None
    )
    return folder / "whole"


def tables(run):
    return {path.name: path.read_bytes() for path in sorted((run / "tables").iterdir())}


def test_killed_at_any_moment_it_ends_with_the_same_bytes(
    folder, whole, forks, tmp_path
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
    end = forks.run(*command(folder, out), script=SMALL)
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


def test_two_processes_make_the_run_of_one(folder, whole, forks, tmp_path):
    out = tmp_path / "run"
    both = forks.together(*command(folder, out), script=SMALL)
    both[0].until(lambda: len(list((out / "stream").glob("*.npz"))) == 2, 0.0005)
    both[1].kill()
    both[1].wait()
    assert both[0].wait().line.startswith("layerscope: process 1 on ")
    line = "was begun by 2 processes, and now there are 1: start 2, or choose another folder"
    assert line in forks.run(*command(folder, out), script=SMALL).line
    ends = [each.wait() for each in forks.together(*command(folder, out), script=SMALL)]
    assert [end.complaint() for end in ends] == [None, None]
    assert_close(layerscope.open_run(out), layerscope.open_run(whole))
    assert layerscope.open_run(out).folder.plan.equals(
        layerscope.open_run(whole).folder.plan
    )


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
    folder, whole, forks, tmp_path
):
    again = forks.run(*command(folder, whole), script=SMALL)
    assert again.complaint() is None and "forward" not in again.err
    other = tmp_path / "given"
    shutil.copytree(folder / "llama", other / "llama")
    labelled(SAMPLES + 1).to_csv(other / "texts.csv", index=False)
    assert (
        "holds another run (data contents"
        in forks.run(*command(other, whole), script=SMALL).line
    )
    assert (
        "holds another run (seed: 0 there, 1 here)"
        in forks.run(*command(folder, whole, "--seed", "1")).line
    )
    out = tmp_path / "run"
    forks.killed(
        *command(folder, out),
        script=SMALL,
        when=lambda: any(out.glob("stream/*.npz")),
    )
    assert (
        "holds another run (data contents"
        in forks.run(*command(other, out), script=SMALL).line
    )
