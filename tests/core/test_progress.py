"""What stops a long job."""

import os
import signal
import time
from contextlib import suppress

import pytest

from layerscope.core.progress import Screen, heed_interrupts


@pytest.fixture
def heard():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with heed_interrupts():
        yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def press() -> None:
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
