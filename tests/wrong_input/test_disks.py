"""Disks that fill up, are full from the start, or refuse a write: a run goes on where there is room again."""

import contextlib
import os
import shutil
import subprocess

import pandas as pd
import pytest

import layerscope
from wrong_input.test_runs import GO_ON, THREE, delete


@pytest.fixture
def small_disk(tmp_path):
    """Return a function that mounts a disk of a given size, where the machine lets one be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def mount(size):
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk],
            capture_output=True,
        )
        if done.returncode:
            pytest.skip("no tmpfs can be mounted here")
        return disk

    yield mount
    subprocess.run(["umount", "-l", disk], capture_output=True)


def fill(disk):
    """Fill a disk up to the last byte."""
    with (disk / "ballast").open("wb") as file, contextlib.suppress(OSError):
        while True:
            os.write(file.fileno(), b"x" * 4096)


def test_a_disk_that_fills_up_and_is_given_room(cli, command, finished, small_disk):
    disk = small_disk("1m")
    run = disk / "run"
    shutil.copytree(finished, run)
    kept = (run / "shards" / "00000.safetensors").stat()
    delete("shards/00003.safetensors", "tables")(run)
    fill(disk)
    printed = cli(*command, "--out", run)
    assert (printed.status, printed.out) == (2, "")
    told = f"cannot be written (no space left on the disk): {GO_ON}"
    # a little may still fit into the log
    files = "log.jsonl", "shards/00003.safetensors"
    assert printed.line in [f"'{run}/{file}' {told}" for file in files]
    (disk / "ballast").unlink()
    again = cli(*command, "--out", run)
    assert again.status == 0 and f"resuming {str(run)!r}: {THREE}" in again.err
    now = (run / "shards" / "00000.safetensors").stat()
    assert (now.st_ino, now.st_mtime_ns) == (kept.st_ino, kept.st_mtime_ns), (
        "what was finished is not touched"
    )
    whole = layerscope.open_run(finished).table()
    pd.testing.assert_frame_equal(
        layerscope.open_run(run).table(), whole, check_exact=True
    )


def test_a_disk_without_room_from_the_start(cli, command, small_disk):
    disk = small_disk("1m")
    fill(disk)
    printed = cli(*command, "--out", disk / "run")
    assert printed.status == 2
    assert printed.line == (
        f"the states take 0.0 MB and {str(disk / 'run')!r} has 0.0 MB free: "
        "take fewer --samples, --store-dtype float16, or another --out"
    )
    assert [path.name for path in disk.iterdir()] == ["ballast"]
