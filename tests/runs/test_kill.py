"""Runs killed with SIGKILL at any moment go on where they stopped and end with the same numbers."""

import random
from collections import Counter

import pandas as pd
import pytest
import tiny
from text_runs import assert_same

import layerscope
from layerscope.runs import RunFolder

KILLS = 4
WORK = """
import sys, tiny, layerscope
options = {"batch_size": 1, "views": 2, "view_samples": 20, "pooling": "mean,last", "alpha": [1.0, 2.0]}
layerscope.profile(sys.argv[1], tiny.texts(60), out=sys.argv[2], progress=False, **options)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.saved(tiny.llama(), tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def whole(forks, model, tmp_path_factory):
    """An undisturbed run."""
    out = tmp_path_factory.mktemp("whole") / "run"
    worked(forks, model, out)
    return out


def worked(forks, model, out):
    ended = forks.run(model, out, script=WORK)
    assert ended.status == 0, ended.err


def progress_of(out):
    """Return how many shards and tables are there."""
    return len(list((out / "shards").glob("*.json"))), len(
        list((out / "tables").glob("*.parquet"))
    )


def test_kills_end_in_the_same_table(forks, model, whole, tmp_path):
    rng, out = random.Random(7), tmp_path / "killed"
    shards, tables = progress_of(whole)
    assert shards >= 20 and tables >= 5

    # three moments of the pass and one of the tables, each with a seeded delay, so that writes are
    # hit too
    killed_at = []
    for kill in range(KILLS):
        after = (
            (progress_of(out)[0] + rng.randint(1, 3), 0)
            if kill < 3
            else (shards, kill - 2)
        )
        forks.killed(
            model,
            out,
            script=WORK,
            when=lambda after=after: progress_of(out) >= after,
            delay=rng.random() * 0.004,
        )
        killed_at.append(progress_of(out))
    assert killed_at[2] < (shards, 0), "the kills were to fall into the pass"
    assert sorted(set(killed_at)) == killed_at

    worked(forks, model, out)
    one, two = layerscope.open_run(whole), layerscope.open_run(out)
    assert_same(one, two)

    # a kill may fall between a shard's last rename and its line in the log, never the other way
    # round
    computed = Counter(event["shard"] for event in two.folder.events("shard"))
    assert set(computed.values()) == {1}
    assert len(computed) >= shards - KILLS
    began = [event["finished"] for event in two.folder.events("resumed")]
    assert began == sorted(began)


def test_the_command_killed_goes_on_with_the_same_command(forks, model, tmp_path):
    data, out = tmp_path / "texts.txt", tmp_path / "run"
    data.write_text("\n".join(tiny.texts(100)))
    command = (
        f"profile {model} --data {data} --chunk 16 --batch-size 1 --samples all "
        f"--views 0 --out {out} --json"
    ).split()
    forks.killed(*command, when=lambda: progress_of(out)[0] >= 5)
    folder = RunFolder(out)
    before = {
        shard: folder.store.path(shard).stat() for shard in folder.store.finished()
    }
    assert 5 <= len(before) < len(folder.shards)
    second = forks.run(*command)
    assert second.status == 0, second.err
    line = f"{len(before)} of {len(folder.shards)} shards are done"
    assert line in " ".join(second.err.split())
    for shard, old in before.items():
        new = folder.store.path(shard).stat()
        assert (new.st_ino, new.st_mtime_ns) == (old.st_ino, old.st_mtime_ns), (
            "not written again"
        )
    run = layerscope.open_run(out)
    assert (
        Counter(e["shard"] for e in run.folder.events("shard")).most_common(1)[0][1]
        == 1
    )
    whole = layerscope.profile(
        str(model),
        data,
        chunk=16,
        batch_size=1,
        samples="all",
        views=0,
        out=tmp_path / "whole",
    )
    pd.testing.assert_frame_equal(run.table(), whole.table(), check_exact=True)
