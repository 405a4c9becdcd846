"""What stops a long job, and what shows that it lives."""

import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from layerscope.core import progress
from layerscope.core.progress import Screen, heed_interrupts, reporting


@pytest.fixture
def heard():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with heed_interrupts():
        yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def press():
    """Press Ctrl-C, and swallow its exception as a library's C code may."""
    with suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)


@pytest.mark.usefixtures("heard")
def test_a_ctrl_c_that_is_swallowed_stops_the_job_at_its_next_step():
    with pytest.raises(KeyboardInterrupt), Screen().bar("forward", 2) as advance:
        advance(1)
        press()
        advance(1)
        pytest.fail("the job went on")


def test_an_ignored_ctrl_c_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with heed_interrupts():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


AT_EXIT = "atexit.register(press)"
TWICE = """
class Screen:
    encoding, closed, fileno = "utf-8", False, sys.stderr.fileno
    def __init__(self, screen): self.screen = screen
    def write(self, text):
        if "stopped" in text:
            press()
        return self.screen.write(text)
    def __getattr__(self, name): return getattr(self.screen, name)

import layerscope.cli as cli
def stopped(*_, **__):
    sys.stderr = Screen(sys.stderr)
    press()
cli.app = stopped
"""
DESTROYED = """
class Dying:
    def __del__(self):
        press()

import layerscope.cli as cli
def deleted(*_, **__):
    Dying()
    print("done")
cli.app = deleted
"""


@pytest.mark.parametrize(
    "moment, status, out, err",
    [
        (AT_EXIT, 0, "layerscope", ""),
        (DESTROYED, 0, "done", ""),
        (TWICE, 130, "", "layerscope: stopped: run the same command to resume\n"),
    ],
)
def test_no_moment_of_a_ctrl_c_shows_a_traceback(moment, status, out, err):
    script = f"""
import atexit, os, signal, sys, time
def press():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)
{moment}
from layerscope.cli import start
sys.argv = ["layerscope", *sys.argv[1:]]
start()
"""
    words = ["--version"] if out == "layerscope" else ["profile"]
    ended = subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (status, err)
    assert ended.stdout.startswith(out)


def test_a_job_whose_standard_error_is_a_file_prints_a_line_a_minute(
    capsys, monkeypatch
):
    clock = iter(range(0, 1000, 25))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with Screen().bar("forward", 2000, "samples") as advance:
        for _ in range(6):
            advance(300)
    lines = capsys.readouterr().err.splitlines()
    assert 1 < len(lines) < 6 and all(
        line.startswith("forward: ") and " of 2,000 samples" in line for line in lines
    )


@pytest.mark.parametrize("shown", [True, False])
def test_lines_go_to_the_logger_and_to_the_screen_where_progress_is_shown(
    capsys, caplog, shown
):
    with caplog.at_level(logging.INFO, logger="layerscope"):
        reporting(shown).say("6 layers of 384")
    assert caplog.record_tuples == [("layerscope", logging.INFO, "6 layers of 384")]
    assert capsys.readouterr().err == ("6 layers of 384\n" if shown else "")
