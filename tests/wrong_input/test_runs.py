"""Run folders that are full, read-only, half deleted, flipped, of another run or in use; output that is cut off."""

import json
import os
import shutil
import signal

import pandas as pd
import pytest
import tiny

import layerscope
from layerscope.core.files import read_json, write_json
from wrong_input.test_files import open_folder, type_as_nobody

__all__ = ["open_folder"]

ANEW = "start the run again in another folder"
GO_ON = "make room, then run the same command to resume"


def flip(name, place=-9):
    def damage(run):
        data = bytearray((run / name).read_bytes())
        data[place] ^= 1
        (run / name).write_bytes(data)

    return damage


def write(name, content):
    return lambda run: (run / name).write_bytes(content)


def delete(*names):
    def damage(run):
        for name in names:
            (shutil.rmtree if (run / name).is_dir() else os.unlink)(run / name)

    return damage


def newer(run):
    path = run / "run.json"
    write_json(path, read_json(path) | {"format": 99})


def edited(run):
    text = (run / "run.json").read_text()
    (run / "run.json").write_text(text.replace('"depth": 3', '"depth": 2'))


REFUSED = {
    "no plan": (delete("plan.parquet"), f"'{{}}/plan.parquet' is missing: {ANEW}"),
    "plan flipped": (
        flip("plan.parquet", 60),
        f"'{{}}/plan.parquet' is damaged: {ANEW}",
    ),
    "run.json of another tool": (
        write("run.json", b'{"a": 1}'),
        "'{}/run.json' is not a run of layerscope: choose another folder",
    ),
    "run.json edited": (
        edited,
        f"'{{}}/run.json' is not the file that layerscope wrote: {ANEW}",
    ),
    "newer format": (
        newer,
        "run folder '{}' was written by a newer layerscope (format 99): upgrade",
    ),
    "shards a file": (
        lambda run: (delete("shards")(run), write("shards", b"")(run)),
        "'{}/shards/00000.safetensors' cannot be written (File exists): "
        "make it writable, then run the same command to resume",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_run_that_cannot_go_on(refusal, command, run, name):
    damage, message = REFUSED[name]
    damage(run)
    assert refusal(*command, "--out", run) == message.replace("{}", str(run))


ALL, THREE = "4 of 4 shards are done", "3 of 4 shards are done"
AGAIN = "has changed since it was written: it is computed again"
MENDED = {
    "no shards": (delete("shards"), ["resuming {}: 0 of 4 shards are done"]),
    "log garbage": (write("log.jsonl", b"\xff\xfe\n{"), [f"resuming {{}}: {ALL}"]),
    "a shard": (delete("shards/00001.safetensors"), [f"resuming {{}}: {THREE}"]),
    "a shard flipped": (
        flip("shards/00002.safetensors"),
        [f"shard 2 of {{}} {AGAIN}", f"resuming {{}}: {THREE}"],
    ),
    "a shard of another": (
        lambda run: shutil.copy(
            run / "shards/00000.safetensors", run / "shards/00001.safetensors"
        ),
        [f"shard 1 of {{}} {AGAIN}", f"resuming {{}}: {THREE}"],
    ),
    "a table flipped": (
        flip("tables/tokens.parquet", 60),
        [f"table tokens of {{}} {AGAIN}", f"resuming {{}}: {ALL}"],
    ),
}


@pytest.mark.parametrize("name", MENDED)
def test_what_is_damaged_is_computed_again(cli, command, run, finished, name):
    damage, lines = MENDED[name]
    damage(run)
    printed = cli(*command, "--out", run)
    assert printed.status == 0, printed.err
    assert printed.err.splitlines()[1:] == [
        line.replace("{}", repr(str(run))) for line in lines
    ]
    whole, mended = layerscope.open_run(finished), layerscope.open_run(run)
    pd.testing.assert_frame_equal(mended.table(), whole.table(), check_exact=True)
    assert (mended.pooled(3) == whole.pooled(3)).all()


def test_a_run_of_another_model(refusal, command, run, gpt2):
    line = refusal("profile", gpt2, *command[2:], "--out", run)
    assert line == (
        f"run folder {str(run)!r} holds another run (model: tiny-bert there, tiny-gpt2 here): "
        "choose another folder with --out, or delete it"
    )


def test_a_read_only_folder(cli, capfd, command, bert, reviews, open_folder):
    shutil.copytree(bert, open_folder / "tiny-bert")
    shutil.copy(reviews, open_folder)
    files = open_folder / "tiny-bert", "--data", open_folder / reviews.name
    words, out = ["profile", *files, *command[4:]], open_folder / "run"
    assert cli(*words, "--out", out).status == 0
    (out / "tables" / "pairs.parquet").unlink()
    for place in [open_folder, *open_folder.rglob("*")]:
        os.chmod(place, 0o555 if place.is_dir() else 0o444)
    status, err = type_as_nobody(capfd, *words, "--out", out)
    assert status == 2
    told = f"layerscope: run folder {str(out)!r} cannot be written (Permission denied): choose another with --out\n"
    assert err.endswith(told) and "Traceback" not in err


def test_a_second_process_is_refused_and_ctrl_c_leaves_a_run_that_goes_on(
    cli, forks, bert, tmp_path
):
    data, out = tmp_path / "texts.jsonl", tmp_path / "run"
    data.write_text("\n".join(json.dumps({"text": text}) for text in tiny.texts(200)))
    arguments = f"profile {bert} --data {data} --out {out} --batch-size 1 --metrics curvature".split()
    running = forks.start(*arguments)
    running.until(lambda: len(list((out / "shards").glob("*.json"))) >= 3)
    # it holds the folder for as long as the second one takes
    running.kill(signal.SIGSTOP)
    second = cli(*arguments)
    # it waits until the process goes on, so no shard more comes first
    running.kill(signal.SIGINT)
    running.kill(signal.SIGCONT)
    assert second.status == 2
    assert second.line == (
        f"another process is writing to {str(out)!r}: wait for it, or choose another folder with --out"
    )
    stopped = running.wait()
    assert (stopped.status, stopped.line) == (
        130,
        "layerscope: stopped: run the same command to resume",
    )
    assert "Traceback" not in stopped.err
    folder = layerscope.open_run(out).folder
    done, total = len(list((out / "shards").glob("*.json"))), len(folder.shards)
    assert 3 <= done < total
    again = cli(*arguments)
    assert again.status == 0
    assert f"resuming {str(out)!r}: {done} of {total} shards are done" in again.err
    folder = layerscope.open_run(out).folder
    computed = [event["shard"] for event in folder.events("shard")]
    assert len(computed) == len(set(computed)), "nothing is computed twice"
    missing = set(range(total)) - set(computed)
    assert len(missing) <= 1, (
        "a shard that was whole when Ctrl-C came may lack its line in the log, no other"
    )
    assert all(map(folder.is_finished, range(total)))
