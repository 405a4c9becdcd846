"""A folder that machines share is guarded without locks, too."""

import errno
import fcntl
import os
import socket
import time
from pathlib import Path

import pytest

import layerscope
from layerscope import LayerscopeError
from layerscope.core import folder_lock
from layerscope.core.folder_lock import locked


@pytest.fixture
def lockless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that knows no locks."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)


def left_by(host: str, folder: Path, seconds_ago: float) -> None:
    folder.mkdir(exist_ok=True)
    (folder / folder_lock.OWNER).write_text(f"12 on {host}")
    os.utime(folder / folder_lock.OWNER, (time.time() - seconds_ago,) * 2)


def test_an_owner_on_another_machine_is_heeded_as_long_as_it_lives(tmp_path: Path):
    left_by("elsewhere", tmp_path, 20)
    with pytest.raises(
        LayerscopeError,
        match=r"process 12 on elsewhere is writing to .*, if it was killed, (39|40) sec",
    ):
        locked(tmp_path).__enter__()
    left_by("elsewhere", tmp_path, folder_lock.STALE + 1)
    with locked(tmp_path):
        assert (
            tmp_path / folder_lock.OWNER
        ).read_text() == f"{os.getpid()} on {socket.gethostname()}"
    assert not list(tmp_path.iterdir())


def test_one_killed_on_this_machine_is_known_dead_by_its_lock(tmp_path: Path):
    left_by(socket.gethostname(), tmp_path, 0)
    with locked(tmp_path):
        pass


def test_without_locks_a_second_job_is_refused_and_the_first_renews_its_mark(
    lockless, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(folder_lock, "BEAT", 0.01)
    with locked(tmp_path / "run"):
        left = tmp_path / "run" / folder_lock.OWNER
        os.utime(left, (1, 1))
        until = time.monotonic() + 10
        while left.stat().st_mtime == 1 and time.monotonic() < until:
            time.sleep(0.01)
        with (
            pytest.raises(LayerscopeError, match=r"process \d+ on .* is writing to"),
            locked(tmp_path / "run"),
        ):
            pass
    with locked(tmp_path / "run"):
        pass


def test_without_locks_the_later_of_two_that_start_at_once_goes_on(
    lockless, tmp_path: Path, monkeypatch
):
    monkeypatch.setattr(
        folder_lock,
        "Event",
        lambda: type("Late", (), {"wait": lambda *_: left_by("elsewhere", tmp_path, 0)})(),
    )
    with pytest.raises(LayerscopeError, match="another process is writing to"), locked(tmp_path):
        pass
    assert (tmp_path / folder_lock.OWNER).read_text() == "12 on elsewhere"


@pytest.mark.parametrize("verb", [layerscope.profile, layerscope.evaluate])
def test_a_second_job_is_refused_before_model_and_data_are_looked_for(tmp_path: Path, verb):
    with (
        locked(tmp_path / "run"),
        pytest.raises(LayerscopeError, match="another process is writing to"),
    ):
        verb("no/such/model", "linear-probe:none.csv", out=tmp_path / "run")
