"""What processes give each other through torch's store: large values, what is left of them, and who has ended."""

import io
import json
import os
import pickle
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numpy as np
import pytest
from commands import BEAT, MISSED
from torch.distributed import PrefixStore, TCPStore
from typed import refused

from layerscope.core.errors import LayerscopeError
from layerscope.core.message_format import packed, unpacked
from layerscope.core.message_store import MessageStore
from layerscope.core.processes import Team

LIMIT = BEAT * MISSED
"""Seconds of silence after which a process counts as dead in these tests."""
SCRIPT = """
import sys, time
from pathlib import Path
from layerscope.core.errors import LayerscopeError
from layerscope.core.processes import team
ours, folder = team(), Path(sys.argv[1])
ours.begin()
ours.meet()
if ours.rank == {rank}:
    {there}
try:
    print([*ours.each(str, range(3))], ours.meet("late"))
except LayerscopeError as error:
    print(error)
"""


@pytest.fixture
def teams(monkeypatch):
    """Three processes as threads of this one, and the store."""
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    store = TCPStore(
        "127.0.0.1",
        0,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=60),
    )

    def join(rank):
        own = TCPStore(
            "127.0.0.1", store.port, is_master=False, timeout=timedelta(seconds=60)
        )
        return Team(rank, 3, MessageStore(rank, 3, PrefixStore("test", own)))

    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(join, range(3)))
        yield found, threads, store
    for team in found:
        team.messages._end()


def test_values_of_any_size_arrive_and_none_stays_in_the_store(teams):
    found, threads, store = teams
    sizes = [[], [], []]

    def share(team):
        for turn in range(6):
            team.begin()
            # 20 MB
            values = team.meet(
                np.full(
                    2_500_000 if turn == 3 else 5, team.rank + turn, dtype=np.float64
                )
            )
            assert [(len(set(value)), value[0]) for value in values] == [
                (1, turn),
                (1, turn + 1),
                (1, turn + 2),
            ]
            assert [*team.each(abs, range(-40, 0))] == [*range(40, 0, -1)]
            assert [*team.each(str, "ab", "the same")] == ["a", "b"]
            assert team.lead(lambda: team.rank) == 0
            team.meet()
            if team.leads:
                sizes[0].append(store.num_keys())

    list(threads.map(share, found))
    # two meetings at most are not deleted yet
    assert max(sizes[0]) <= min(sizes[0]) + 12, sizes[0]


def test_the_first_of_those_that_end_together_is_the_first_process(teams):
    found, threads, _ = teams
    firsts = threads.map(lambda team: team.messages.first_left(1, -1), found)
    assert [*firsts] == [0, 0, 0]


class Harm:
    """Whose pickle, read, makes a file."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return os.mkdir, (str(self.file),)


@pytest.mark.parametrize("numpy_too", [False, True])
def test_what_another_program_writes_runs_no_code(teams, tmp_path, numpy_too):
    (first, *_), _, store = teams
    harm = Harm(tmp_path / "ran")
    data = pickle.dumps(harm)
    if numpy_too:  # a right message but for its array
        text, array = json.dumps({"array": 0}).encode(), io.BytesIO()
        np.save(array, np.array([harm]), allow_pickle=True)
        data = len(text).to_bytes(8, "little") + text + array.getvalue()
        data = len(data).to_bytes(8, "little") + data
    first.begin()
    others = PrefixStore("test", store)
    others.set(f"{(1, 1, 1)} value", data)
    for rank in (1, 2):
        others.set(str((1, 1, rank)), "complete")
    with refused("another program has written to the launcher's store"):
        first.meet()
    assert not harm.file.exists()


@pytest.mark.parametrize(
    "tree",
    [
        ["layerscope.__main__", "start", {"dict": []}],
        ["os", "system", "true"],
        ["layerscope.core.files", "digest", {"dict": []}],
        ["layerscope.core.files", "Path", {"dict": []}],
    ],
)
def test_a_message_names_no_class_but_dataclasses_of_layerscope(tree):
    text = json.dumps({"object": tree}).encode()
    with pytest.raises(ValueError, match="no message"):
        unpacked(
            (8 + len(text)).to_bytes(8, "little")
            + len(text).to_bytes(8, "little")
            + text
        )


def test_all_raise_the_first_error_of_the_verb_and_go_on_with_the_next(teams):
    found, threads, _ = teams

    def fail(team):
        team.begin()
        if team.rank == 1:
            team.fail(ValueError("of process 1"))
            return ""
        with pytest.raises((LayerscopeError, RuntimeError)) as raised:
            team.meet()
        team.fail(raised.value)
        return str(raised.value)

    assert list(threads.map(fail, found)) == [
        "ValueError: of process 1",
        "",
        "ValueError: of process 1",
    ]
    assert (
        list(threads.map(lambda team: team.begin() or team.meet(team.rank), found))
        == [[0, 1, 2]] * 3
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_who_ends_in_order_is_named_soon(forks, tmp_path, rank):
    both = forks.together(tmp_path, script=SCRIPT.format(rank=rank, there="sys.exit()"))
    ended = both[rank].wait()
    start = time.monotonic()
    left = both[1 - rank].wait()
    assert (left.status, ended.status) == (0, 0), left.err + ended.err
    assert (
        left.out
        == f"process {rank} on {socket.gethostname()} has ended: run the same command to resume\n"
    )
    assert time.monotonic() - start < 0.8 * LIMIT


def test_who_pauses_is_waited_for(forks, tmp_path):
    there = "(folder / 'paused').touch(); time.sleep(0.5)"
    both = forks.together(tmp_path, script=SCRIPT.format(rank=1, there=there))
    both[0].until((tmp_path / "paused").exists)
    both[1].kill(signal.SIGSTOP)
    time.sleep(0.3 * LIMIT)
    both[1].kill(signal.SIGCONT)
    ends = [process.wait() for process in both]
    assert [end.out for end in ends] == ["['0', '1', '2'] ['late', 'late']\n"] * 2, ends


def test_of_two_messages_under_one_key_the_first_is_read():
    first, second = packed(RuntimeError("of process 1")), packed([np.ones(3)])
    assert str(unpacked(first + second)) == "of process 1"
    (array,) = unpacked(second + first)
    assert array.tolist() == [1.0, 1.0, 1.0]
