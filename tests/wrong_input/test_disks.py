"""Disks that fill up, are full from the start, or refuse a write: a run goes on where there is room again."""

import contextlib
import os
import shutil
import subprocess

import pandas as pd
import pytest

import layerscope
from wrong_input.test_runs import GO_ON, THREE, delete


def mounted(folder, size):
    """Mount a disk of a given size over a folder, where the machine lets one be mounted."""
    disk = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
    if subprocess.run(disk, capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here")


@pytest.fixture
def disk(tmp_path):
    """A disk of a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted(folder, "1m")
    yield folder
    subprocess.run(["umount", "-l", folder], capture_output=True)


def fill(disk):
    """Fill a disk up to the last byte."""
    with (disk / "ballast").open("wb") as file, contextlib.suppress(OSError):
        while True:
            os.write(file.fileno(), b"x" * 4096)


def test_a_disk_that_fills_up_and_is_given_room(cli, command, finished, disk):
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


def test_a_disk_without_room_from_the_start(cli, command, disk):
    fill(disk)
    printed = cli(*command, "--out", disk / "run")
    assert printed.status == 2
    assert printed.line == (
        f"the states take 0.0 MB and {str(disk / 'run')!r} has 0.0 MB free: "
        "take fewer --samples, --store-dtype float16, or another --out"
    )
    assert [path.name for path in disk.iterdir()] == ["ballast"]
