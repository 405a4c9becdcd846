"""One job at a time writes to a folder, where the file system knows locks and until its process is killed."""

import errno
import fcntl
import signal

import pytest
from typed import refused

import layerscope
from layerscope.core.folder_lock import locked

BUSY = "another process is writing to"


def test_without_locks_jobs_go_on(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("verb", [layerscope.profile, layerscope.evaluate])
def test_a_second_job_is_refused_before_model_and_data_are_looked_for(tmp_path, verb):
    with locked(tmp_path / "run"), refused(BUSY):
        verb("no/such/model", "linear-probe:none.csv", out=tmp_path / "run")


HOLDER = """
import sys, time
from pathlib import Path
from layerscope.core.folder_lock import locked
with locked(Path(sys.argv[1])):
    (Path(sys.argv[1]).parent / "held").touch()
    time.sleep(60)
"""


def test_a_killed_holder_does_not_block_the_next_run(forks, tmp_path):
    holder = forks.start(tmp_path / "run", script=HOLDER)
    holder.until(lambda: (tmp_path / "held").exists())
    with (
        refused(BUSY),
        locked(tmp_path / "run"),
    ):
        pass
    holder.kill()
    assert holder.wait().status == -signal.SIGKILL
    with locked(tmp_path / "run"):
        pass
    assert not (tmp_path / "run" / ".lock").exists()
