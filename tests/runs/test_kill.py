"""Runs killed with SIGKILL at any moment go on where they stopped and end with the same numbers."""

import multiprocessing as mp
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import layerscope
from layerscope.runs import RunFolder

KILLS = 10
OPTIONS = {"batch_size": 1, "views": 2, "view_samples": 50, "pooling": "mean,last", "alpha": [1.0, 2.0]}


def work(model: str, out: str) -> None:
    """Run in a child: its torch threads stay one, as its parent's pool does not outlive a fork."""
    import tiny
    import torch

    torch.set_num_threads(1)
    layerscope.profile(model, tiny.texts(100), out=out, progress=False, **OPTIONS)


@pytest.fixture(scope="module")
def spawner():
    """Return a context whose children come from a clean process that has imported torch already."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(
        ["layerscope.profiling", "transformers.models.llama.modeling_llama", "pyarrow.parquet", "tiny"]
    )
    return context


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tiny

    return tiny.saved(tiny.llama(), tmp_path_factory.mktemp("llama"), special=False)


def progress_of(out: Path) -> tuple[int, int]:
    """Return how many shards and tables are there."""
    return len(list((out / "shards").glob("*.json"))), len(list((out / "tables").glob("*.parquet")))


def assert_same(one: layerscope.Run, two: layerscope.Run) -> None:
    pd.testing.assert_frame_equal(one.table(), two.table(), check_exact=True)
    pd.testing.assert_frame_equal(one.samples(), two.samples(), check_exact=True)
    for site in ("raw", "normed"):
        for layer in range(one.depth + 1):
            for pooling in ("mean", "last"):
                assert np.array_equal(one.pooled(layer, site, pooling), two.pooled(layer, site, pooling))


def test_ten_kills_end_in_the_same_table(spawner, model: Path, tmp_path: Path) -> None:
    rng = random.Random(7)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    undisturbed = spawner.Process(target=work, args=(str(model), str(whole)))
    undisturbed.start()
    undisturbed.join()
    assert undisturbed.exitcode == 0
    shards, tables = progress_of(whole)
    assert shards >= 20 and tables >= 5

    # eight moments of the pass and two of the tables, each with a seeded delay, so that writes are hit too
    killed_at = []
    for kill in range(KILLS):
        after = (progress_of(killed)[0] + rng.randint(1, 3), 0) if kill < 8 else (shards, kill - 7)
        child = spawner.Process(target=work, args=(str(model), str(killed)))
        child.start()
        while progress_of(killed) < after and child.is_alive():
            time.sleep(0.0005)
        time.sleep(rng.random() * 0.004)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert child.exitcode == -signal.SIGKILL
        killed_at.append(progress_of(killed))
    assert killed_at[7] < (shards, 0), "the kills were to fall into the pass"
    assert sorted(set(killed_at)) == killed_at

    last = spawner.Process(target=work, args=(str(model), str(killed)))
    last.start()
    last.join()
    assert last.exitcode == 0
    one, two = layerscope.open_run(whole), layerscope.open_run(killed)
    assert_same(one, two)

    # a kill may fall between a shard's last rename and its line in the log, never the other way round
    computed = Counter(event["shard"] for event in two.folder.events("shard"))
    assert set(computed.values()) == {1}
    assert len(computed) >= shards - KILLS
    began = [event["finished"] for event in two.folder.events("resumed")]
    assert began == sorted(began)


def test_a_finished_shard_is_never_written_again(spawner, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    child = spawner.Process(target=work, args=(str(model), str(out)))
    child.start()
    while progress_of(out)[0] < 9 and child.is_alive():
        time.sleep(0.001)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    folder = RunFolder(out)
    before = {s: (out / "shards" / f"{s:05d}.safetensors").stat() for s in folder.shards if folder.is_finished(s)}
    assert 9 <= len(before) < len(folder.shards)
    again = spawner.Process(target=work, args=(str(model), str(out)))
    again.start()
    again.join()
    assert again.exitcode == 0
    for shard, old in before.items():
        new = (out / "shards" / f"{shard:05d}.safetensors").stat()
        assert (new.st_ino, new.st_mtime_ns) == (old.st_ino, old.st_mtime_ns)
    forwards = [event["shard"] for event in folder.events("shard")]
    assert not set(forwards[len(before) :]) & set(before)


def test_the_command_killed_goes_on_with_the_same_command(model: Path, tmp_path: Path) -> None:
    import tiny

    data, out = tmp_path / "texts.txt", tmp_path / "run"
    data.write_text("\n".join(tiny.texts(100)))
    command = [
        sys.executable, "-m", "layerscope", "profile", str(model), "--data", str(data), "--chunk", "16",
        "--batch-size", "1", "--samples", "all", "--views", "0", "--out", str(out), "--json",
    ]  # fmt: skip
    threads = os.environ | {"OMP_NUM_THREADS": "1"}  # another number of threads may give another last bit
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=threads)
    while progress_of(out)[0] < 5:
        assert first.poll() is None, first.stderr.read().decode()
        time.sleep(0.002)
    first.kill()
    assert first.wait() == -signal.SIGKILL
    finished = progress_of(out)[0]
    total = len(RunFolder(out).shards)
    assert finished < total
    second = subprocess.run(command, capture_output=True, text=True, env=threads)
    assert second.returncode == 0, second.stderr
    assert f"{finished} of {total} shards are there" in " ".join(second.stderr.split())
    run = layerscope.open_run(out)
    assert Counter(e["shard"] for e in run.folder.events("shard")).most_common(1)[0][1] == 1
    whole = layerscope.profile(
        str(model), data, chunk=16, batch_size=1, samples="all", views=0, out=tmp_path / "whole", progress=False
    )
    pd.testing.assert_frame_equal(run.table(), whole.table(), check_exact=True)
