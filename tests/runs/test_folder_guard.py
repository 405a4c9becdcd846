"""One job at a time writes to a folder, where the file system knows locks."""

import errno
import fcntl
from pathlib import Path

import pytest

import layerscope
from layerscope import LayerscopeError
from layerscope.core.folder_lock import locked

BUSY = "another process is writing to"


def test_without_locks_jobs_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("verb", [layerscope.profile, layerscope.evaluate])
def test_a_second_job_is_refused_before_model_and_data_are_looked_for(
    tmp_path: Path, verb
):
    with locked(tmp_path / "run"), pytest.raises(LayerscopeError, match=BUSY):
        verb("no/such/model", "linear-probe:none.csv", out=tmp_path / "run")
