"""`profile` in two real processes by torchrun: the run of one process, whichever of them dies on the way."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny
from commands import Forks
from tiny import one_thread

import layerscope
from layerscope.core.folder_lock import locked

__all__ = ["one_thread"]
SAMPLES = 45
KINDS = (
    "curvature",
    "dataset_entropy",
    "infonce",
    "lidar",
    "cosine_similarity",
    "cka",
    "perplexity",
    "linear_probe",
)
OPTIONS = {"batch_size": 1, "views": 1, "metrics": KINDS}
TORCHRUN = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node",
    "2",
]


def started(*command: str) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    return subprocess.Popen(
        [*TORCHRUN, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a language model and labelled texts."""
    folder = tmp_path_factory.mktemp("given")
    tiny.saved(tiny.llama(), folder / "llama", special=False)
    rows = [f"{text},{'ab'[len(text) % 2]}" for text in tiny.texts(SAMPLES, longest=12)]
    (folder / "texts.csv").write_text("\n".join(["text,label", *rows]))
    return folder


@pytest.fixture(scope="module")
def single(given: Path, one_thread) -> layerscope.Run:
    """The run of one process."""
    return alone(given, given / "single")


def alone(given: Path, out: Path) -> layerscope.Run:
    return layerscope.profile(
        str(given / "llama"), given / "texts.csv", out=out, progress=False, **OPTIONS
    )


def command(given: Path, verb: str, out: str, *options: str) -> list[str]:
    """Return a verb on the language model and the texts."""
    model, texts = str(given / "llama"), str(given / "texts.csv")
    return [verb, model, "--data", texts, "--out", str(given / out), *options]


def asked(given: Path, out: str, *more: str) -> list[str]:
    kinds = ",".join(KINDS)
    options = ("--batch-size", "1", "--views", "1", "--metrics", kinds, "--json")
    return command(given, "profile", out, *options, *more)


@pytest.fixture(scope="module")
def launched(given: Path, single: layerscope.Run) -> tuple[int, str, str]:
    """Two processes that answer to wrong commands, to a right one, and end with a wrong one: what torchrun told."""
    right, states = asked(given, "two"), ("--layers", "1,2", "--chunk-rows", "6")
    missing = str(given / "missing.csv")
    commands = {
        "option": [*right, "--vievs", "2"],
        "command": ["inspect", str(given / "llama")],
        "data": ["profile", str(given / "llama"), "--data", missing],
        "held": asked(given, "held"),
        "only one": [right, [*right, "--samples", "20"]],
        "fault": right,
        "right": right,
        "states": command(given, "extract", "states", *states, "--json"),
        "last": asked(given, "none", "--samples", "none"),
    }
    (given / "commands.json").write_text(json.dumps(commands))
    with locked(given / "held"):
        return ended(
            started(str(Path(__file__).parents[1] / "together.py"), str(given))
        )


@pytest.fixture(scope="module")
def told(
    given: Path, launched: tuple[int, str, str]
) -> list[dict[str, tuple[int, str, str]]]:
    """What two processes answered to each command but the last: a dict for each process."""
    assert (given / "told-1.json").exists(), launched[2]
    return [json.loads((given / f"told-{rank}.json").read_text()) for rank in range(2)]


def assert_same(one: layerscope.Run, two: layerscope.Run) -> None:
    pd.testing.assert_frame_equal(one.table(), two.table(), check_exact=True)
    pd.testing.assert_frame_equal(one.samples(), two.samples(), check_exact=True)
    for site in ("raw", "normed"):
        for layer in range(one.depth + 1):
            assert np.array_equal(one.pooled(layer, site), two.pooled(layer, site))


def test_two_processes_make_the_run_of_one(told, given: Path, single: layerscope.Run):
    (status, out, _), second = told[0]["right"], told[1]["right"]
    assert (status, json.loads(out)["path"]) == (0, str(given / "two"))
    assert second == [0, "", ""]
    two = layerscope.open_run(given / "two")
    assert set(KINDS) <= set(two.table()["metric"])
    assert_same(single, two)
    assert two.folder.plan.equals(single.folder.plan)
    computed = [event["shard"] for event in two.folder.events("shard")]
    assert sorted(computed) == two.folder.shards


def test_two_processes_write_the_states_of_one(told, given: Path, one_thread):
    (status, out, _), second = told[0]["states"], told[1]["states"]
    assert (status, second) == (0, [0, "", ""]), told[0]["states"]
    assert json.loads(out)["whole"] and json.loads(out)["samples"] == SAMPLES
    texts = given / "texts.csv"
    layerscope.extract(
        str(given / "llama"),
        texts,
        [1, 2],
        out=given / "alone",
        chunk_rows=6,
        progress=False,
    )
    one, two = (
        {path.name: path.read_bytes() for path in (given / name / "chunks").iterdir()}
        for name in ("alone", "states")
    )
    assert len(one) == 8 and one == two


@pytest.mark.parametrize(
    ("name", "status", "line"),
    [
        ("option", 2, "option --vievs does not exist, did you mean --views?"),
        ("command", 2, "layerscope inspect works in one"),
        ("data", 2, "missing.csv' does not exist"),
        ("held", 2, "another process is writing to"),
        ("only one", 2, "holds another run (samples"),
        ("fault", 1, "ValueError: a fault of process 1"),
    ],
)
def test_an_error_is_reported_once_and_ends_both(
    told, name: str, status: int, line: str
):
    (first, _, err), second = told[0][name], told[1][name]
    assert (first, err.count("layerscope: ")) == (status, 1) and line in err
    assert second == [status, "", ""]


def test_torchrun_ends_with_the_one_line_in_front_of_its_own(launched, given: Path):
    status, out, err = launched
    # the status is torchrun's own
    assert (status, out, err.count("layerscope: ")) == (1, "", 1)
    assert (
        "exitcode  : 2" in err and "Traceback" not in err.partition("layerscope: ")[0]
    )
    assert not (given / "none").exists()


def killed(
    forks: Forks, given: Path, out: Path, rank: int, shards: int, tables: int = 0
) -> None:
    """Start two processes and kill one when so much is there; the other ends, and says why."""
    both = forks.together(*asked(given, str(out)))
    both[0].until(lambda: len(list((out / "shards").glob("*.json"))) >= shards, 0.0005)
    both[0].until(
        lambda: len(list((out / "tables").glob("*.parquet"))) >= tables, 0.0005
    )
    both[rank].kill()
    assert both[rank].wait().status == -signal.SIGKILL
    left = both[1 - rank].wait()
    line = f"layerscope: process {rank} on {socket.gethostname()} has ended: run the same command to resume"
    assert (left.status, left.line) == (2, line)
    assert left.err.splitlines()[-1] == left.line


def test_one_is_killed_in_the_pass_then_the_other_then_the_first_in_the_tables(
    forks: Forks, given: Path, single: layerscope.Run, tmp_path: Path
):
    out, copy = tmp_path / "run", tmp_path / "copy"
    killed(forks, given, out, rank=0, shards=6)
    finished = len(list((out / "shards").glob("*.json")))
    assert 6 <= finished < len(single.folder.shards)
    shutil.copytree(out, copy)
    assert_same(single, alone(given, copy))  # one process goes on

    # the first goes on with what is left before it ends
    killed(forks, given, out, rank=1, shards=finished + 2)
    # two go on, through the pass and into the tables
    killed(forks, given, out, rank=0, shards=finished + 2, tables=2)
    folder = layerscope.open_run(out).folder
    assert all(folder.is_finished(shard) for shard in folder.shards)
    assert 2 <= len(folder.tables()) < len(single.folder.tables())
    assert_same(single, alone(given, out))
    computed = [event["shard"] for event in folder.events("shard")]
    assert (
        sorted(computed) == sorted(set(computed))
        and len(computed) >= len(folder.shards) - 3
    )
