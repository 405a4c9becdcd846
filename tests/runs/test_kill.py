"""Runs killed with SIGKILL at any moment go on where they stopped and end with the same numbers."""

import random
from collections import Counter

import pytest
from text_runs import assert_same

import layerscope

KILLS = 4
WORK = """
import sys, tiny, layerscope
options = {"batch_size": 1, "views": 2, "view_samples": 20, "pooling": "mean,last", "alpha": [1.0, 2.0]}
layerscope.profile(sys.argv[1], tiny.texts(60), out=sys.argv[2], progress=False, **options)
"""


@pytest.fixture(scope="module")
def whole(forks, llama, tmp_path_factory):
    """An undisturbed run."""
    out = tmp_path_factory.mktemp("whole") / "run"
    worked(forks, llama, out)
    return out


def worked(forks, llama, out):
    ended = forks.run(llama, out, script=WORK)
    assert ended.status == 0, ended.err


def progress_of(out):
    """Return how many shards and tables are there."""
    return len(list((out / "shards").glob("*.json"))), len(
        list((out / "tables").glob("*.parquet"))
    )


def test_kills_end_in_the_same_table(forks, llama, whole, tmp_path):
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
            llama,
            out,
            script=WORK,
            when=lambda after=after: progress_of(out) >= after,
            delay=rng.random() * 0.004,
        )
        killed_at.append(progress_of(out))
    assert killed_at[2] < (shards, 0), "the kills were to fall into the pass"
    assert sorted(set(killed_at)) == killed_at

    worked(forks, llama, out)
    one, two = layerscope.open_run(whole), layerscope.open_run(out)
    assert_same(one, two)

    # a kill may fall between a shard's last rename and its line in the log, never the other way
    # round
    computed = Counter(event["shard"] for event in two.folder.events("shard"))
    assert set(computed.values()) == {1}
    assert len(computed) >= shards - KILLS
    began = [event["finished"] for event in two.folder.events("resumed")]
    assert began == sorted(began)
