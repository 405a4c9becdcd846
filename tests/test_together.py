"""Verbs in two real processes by torchrun: the same as in one, whichever of them dies on the way."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
from commands import EARLY
from text_runs import assert_same

import layerscope
from layerscope.core.folder_lock import locked

HOST = socket.gethostname()
SAMPLES = 45
KINDS = "curvature,dataset_entropy,infonce,lidar,cosine_similarity,cka,perplexity,linear_probe"
OPTIONS = {"batch_size": 1, "views": 1, "metrics": KINDS}
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
LM_TASK = """task: endings
dataset_path: json
dataset_kwargs: {data_files: %s}
output_type: multiple_choice
test_split: train
doc_to_text: "{{begin}}"
doc_to_target: "{{right}}"
doc_to_choice: "{{ends}}"
metric_list: [{metric: acc, higher_is_better: true}]
"""


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A folder with a language model, a classifier, labelled texts of two sources, pairs, a task and a run."""
    folder = tmp_path_factory.mktemp("given")
    tiny.saved(tiny.llama(), folder / "llama")
    tiny.saved(tiny.classifier(2), folder / "bert")
    texts = tiny.texts(120, longest=12)
    parts = {"texts": texts[:SAMPLES], "topics": texts[:80], "later": texts[80:]}
    for name, own in parts.items():
        rows = [f"{text},{'ab'[len(text) % 2]}" for text in own]
        (folder / f"{name}.csv").write_text("\n".join(["text,label", *rows]))
    pairs = [
        f"{a},{b},{i % 6}"
        for i, (a, b) in enumerate(zip(texts[:40], texts[40:80], strict=True))
    ]
    (folder / "pairs.csv").write_text("\n".join(["text_a,text_b,score", *pairs]))
    questions = [
        {"begin": text, "ends": ["w1 w2", "w3"], "right": len(text) % 2}
        for text in texts[:30]
    ]
    (folder / "endings.jsonl").write_text("\n".join(map(json.dumps, questions)))
    (folder / "endings.yaml").write_text(LM_TASK % (folder / "endings.jsonl"))
    layerscope.profile(
        str(folder / "llama"),
        folder / "topics.csv",
        out=folder / "run",
        views=0,
        metrics="linear_probe",
    )
    return folder


@pytest.fixture(scope="module")
def single(given):
    """The run of one process."""
    return alone(given, given / "single")


def alone(given, out):
    return layerscope.profile(
        str(given / "llama"), given / "texts.csv", out=out, **OPTIONS
    )


def command(given, verb, out, options):
    """Return a verb on the language model and the texts."""
    return f"{verb} {given}/llama --data {given}/texts.csv --out {given / out} {options}".split()


def asked(given, out, more=""):
    options = f"--batch-size 1 --views 1 --metrics {KINDS} --json"
    return command(given, "profile", out, f"{options} {more}")


def compared(given, out):
    """One command of each kind, each with a folder of its own."""
    topics, run, llama = (str(given / name) for name in ("topics.csv", "run", "llama"))
    lines = {
        "evaluate": f"evaluate {llama} --data linear-probe:{topics} --data knn-probe:{topics} "
        f"--data sts:{given}/pairs.csv --tasks lm:{given}/endings.yaml --layers 2,3 --mixes",
        "shift": f"evaluate {llama} --data linear-probe:{topics} --shift {given}/later.csv",
        "select": f"select {run} --json",
        "drop": f"select {run} --drop 2 --json",
        "exits": f"exits {given}/bert --data {topics} {' '.join(map(str, EARLY))} --exits 1,2",
        "drafts": f"exits {llama} --data {topics} --prefix 3 --max-new-tokens 16 --samples 4 --draft-tokens 2",
    }
    return {
        name: f"{line} --out {given}/{name}-{out}".split()
        for name, line in lines.items()
    }


@pytest.fixture(scope="module")
def launched(given, single, forks):
    """One process answers to what is compared; two to that, to wrong commands, and end with one: what torchrun told."""
    for name, words in compared(given, "one").items():
        alone_ended = forks.run(*words)
        assert alone_ended.status == 0, (name, alone_ended.err)
    right, states = asked(given, "two"), "--layers 1,2 --chunk-rows 6 --json"
    commands = compared(given, "two") | {
        "option": [*right, "--vievs", "2"],
        "command": ["inspect", str(given / "llama")],
        "data": f"profile {given}/llama --data {given}/missing.csv".split(),
        "held": asked(given, "held"),
        "only one": [right, [*right, "--samples", "20"]],
        "fault": right,
        "right": right,
        "states": command(given, "extract", "states", states),
        "last": asked(given, "none", "--samples none"),
    }
    (given / "commands.json").write_text(json.dumps(commands))
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    with locked(given / "held"):
        done = subprocess.run(
            [
                sys.executable,
                *TORCHRUN,
                str(Path(__file__).parent / "together.py"),
                str(given),
            ],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            timeout=300,
        )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def told(given, launched):
    """What two processes answered to each command but the last: a dict for each process."""
    assert (given / "told-1.json").exists(), launched[2]
    return [json.loads((given / f"told-{rank}.json").read_text()) for rank in range(2)]


def assert_same_scores(one, two):
    """Probes byte for byte, mteb's results but for its clock."""
    written = {path.relative_to(one) for path in one.rglob("*.json")}
    assert (
        written == {path.relative_to(two) for path in two.rglob("*.json")} and written
    )
    for path in written:
        if path.parts[0] == "results" and "model_meta" not in path.name:
            found = [json.loads((folder / path).read_text()) for folder in (one, two)]
            for result in found:
                for clock in ("evaluation_time", "evaluation_phases", "date"):
                    del result[clock]
            assert found[0] == found[1]
        elif path.parts[0] != "results":
            assert (one / path).read_bytes() == (two / path).read_bytes(), path


def test_two_processes_make_the_run_of_one(told, given, single):
    (status, out, _), second = told[0]["right"], told[1]["right"]
    assert (status, json.loads(out)["path"]) == (0, str(given / "two"))
    assert second == [0, "", ""]
    two = layerscope.open_run(given / "two")
    assert set(KINDS.split(",")) <= set(two.table()["metric"])
    assert_same(single, two)
    assert two.folder.plan.equals(single.folder.plan)
    computed = [event["shard"] for event in two.folder.events("shard")]
    assert sorted(computed) == two.folder.shards


def test_two_processes_write_the_states_of_one(told, given):
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
    )
    one, two = (
        {path.name: path.read_bytes() for path in (given / name / "chunks").iterdir()}
        for name in ("alone", "states")
    )
    assert len(one) == 8 and one == two


@pytest.mark.parametrize(
    "name, status, line",
    [
        ("option", 2, "option --vievs does not exist, did you mean --views?"),
        ("command", 2, "layerscope inspect works in one"),
        ("data", 2, "missing.csv' does not exist"),
        ("held", 2, "another process is writing to"),
        ("only one", 2, "holds another run (samples"),
        ("fault", 1, "ValueError: a fault of process 1"),
    ],
)
def test_an_error_is_reported_once_and_ends_both(told, name, status, line):
    (first, _, err), second = told[0][name], told[1][name]
    assert (first, err.count("layerscope: ")) == (status, 1) and line in err
    assert second == [status, "", ""]


def test_torchrun_ends_with_the_one_line_in_front_of_its_own(launched, given):
    status, out, err = launched
    # the status is torchrun's own
    assert (status, out, err.count("layerscope: ")) == (1, "", 1)
    assert (
        "exitcode  : 2" in err and "Traceback" not in err.partition("layerscope: ")[0]
    )
    assert not (given / "none").exists()


def left_by(both, rank):
    """Kill one of two processes, and return how the other ends, which says why."""
    both[rank].kill()
    assert both[rank].wait().status == -signal.SIGKILL
    left = both[1 - rank].wait()
    line = f"layerscope: process {rank} on {HOST} has ended: run the same command to resume"
    assert left.line == line
    return left


def killed(forks, given, out, rank, shards, tables=0):
    """Start two processes and kill one when so much is there; the other ends, and says why."""
    both = forks.together(*asked(given, str(out)))
    both[0].until(lambda: len(list((out / "shards").glob("*.json"))) >= shards, 0.0005)
    both[0].until(
        lambda: len(list((out / "tables").glob("*.parquet"))) >= tables, 0.0005
    )
    left = left_by(both, rank)
    assert (left.status, left.err.splitlines()[-1]) == (2, left.line)


def test_one_is_killed_in_the_pass_then_the_other_then_the_first_in_the_tables(
    forks, given, single, tmp_path
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


def test_each_verb_is_shared_and_the_first_process_alone_prints(told, given):
    for name in compared(given, ""):
        first, second = (answers[name] for answers in told)
        assert first[0] == 0 and first[1], (name, first[2])
        assert second == [0, "", ""], name


def test_two_processes_evaluate_as_one(told, given):
    assert_same_scores(given / "evaluate-one", given / "evaluate-two")
    assert_same_scores(given / "shift-one", given / "shift-two")
    assert not (given / "evaluate-two" / "states").exists()


def test_two_processes_select_as_one(told, given):
    one, two = (
        [path.read_bytes() for path in sorted((given / f"drop-{n}").glob("*.json"))]
        for n in ("one", "two")
    )
    assert one == two and one
    one, two = (
        layerscope.open_selection(given / f"select-{n}") for n in ("one", "two")
    )
    assert (one.layer, one.why, one.chosen.score) == (
        two.layer,
        two.why,
        two.chosen.score,
    )
    assert two.chosen.milliseconds


def test_two_processes_find_the_exits_of_one(told, given):
    one, two = (
        layerscope.open_exit_report(given / f"exits-{n}") for n in ("one", "two")
    )
    known = (
        "exits",
        "threshold",
        "calibration",
        "accuracy",
        "plain_accuracy",
        "disagreement",
    )
    assert [getattr(one, name) for name in known] == [
        getattr(two, name) for name in known
    ]
    one, two = (
        layerscope.open_draft_report(given / f"drafts-{n}") for n in ("one", "two")
    )
    assert one.ways["acceptance"].tolist()[1] == two.ways["acceptance"].tolist()[1] > 0


@pytest.mark.parametrize("rank", [0, 1])
def test_killed_at_some_moment_the_same_command_ends_with_the_same_scores(
    told, forks, given, tmp_path, rank
):
    command = [*compared(given, "")["evaluate"][:-1], str(tmp_path / "out")]
    running = forks.together(*command)
    running[0].until(
        lambda: len(list((tmp_path / "out").glob("*/*/*.json"))) > rank, 0.01
    )
    left_by(running, rank)
    assert [process.wait().status for process in forks.together(*command)] == [0, 0]
    assert_same_scores(given / "evaluate-one", tmp_path / "out")
