"""Processes that work beside this one: of one thread each, deaf to Ctrl-C, and gone when this one is."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from layerscope.core.processes import launched

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def wanted(jobs: int | str, most: int) -> int:
    """Return how many processes to work in: "auto" is one for each core, and `most` is what there is to do.

    Processes of this machine that were launched together share its cores.
    """
    from joblib import cpu_count

    beside = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if launched() > 1 else 1
    return max(1, min(int(cpu_count() // beside if jobs == "auto" else jobs), most))


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
    """Submit a job and return its future; raises `BrokenProcessPool` where a process has died."""
    with _deaf():
        return pool.submit(function, *arguments)


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Give torch this number of threads, and then what it had before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute as a worker does: in what is small, more threads wait for each other."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), torch_threads(1):
        yield


@contextmanager
def _deaf() -> Iterator[None]:
    """Start processes that do not hear Ctrl-C, from their first line on: this one hears it and ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
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
