"""Processes that work beside this one: of one thread each, deaf to Ctrl-C, and gone when this one is."""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from layerscope.core.workers import one_thread as one_thread

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def wanted(jobs: int | str, most: int) -> int:
    """Return how many processes to work in: "auto" is one for each core, and `most` is what there is to do."""
    from joblib import cpu_count

    if jobs == "auto":
        jobs = cpu_count()
    return max(1, min(int(jobs), most))


def started(jobs: int) -> Any:
    """Return a loky `ProcessPoolExecutor`; its processes start with the first job that is submitted."""
    from joblib.externals.loky import ProcessPoolExecutor

    return ProcessPoolExecutor(
        jobs,
        initializer=_start,
        initargs=(os.getpid(),),
        env=dict.fromkeys(THREADS, "1"),
    )


def submit(pool: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Submit a job and return its future; raises `BrokenProcessPool` where a process has died.

    A process that starts with it does not hear Ctrl-C, from its first line on: this one hears it
    and ends them all.
    """
    if threading.current_thread() is not threading.main_thread():
        return pool.submit(function, *arguments)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return pool.submit(function, *arguments)
    finally:
        signal.signal(signal.SIGINT, before)


def _start(parent: int) -> None:
    """Make a process a worker: of one thread, and gone when its parent is."""
    import torch

    torch.set_num_threads(1)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
