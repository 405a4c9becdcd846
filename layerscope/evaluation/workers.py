"""Processes that judge layers from the states on disk, without the model."""

from __future__ import annotations

import os
import pickle
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from layerscope.evaluation.judging import Undefined, judge, quiet
from layerscope.evaluation.layer_encoder import LayerEncoder
from layerscope.evaluation.texts import MissingTexts, torch_threads

WORTH = 20.0
"""Seconds of judging from which on it pays to start processes, each of which imports mteb."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Workers:
    """At most `jobs` processes, started when the judging in this process has cost, or will, what their start does."""

    def __init__(self, jobs: int) -> None:
        self.jobs, self.spent = jobs, 0.0
        self._pool: Any = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(kill=kind is not None)

    def worth(self, seconds: float, left: int) -> bool:
        """Return whether the layers left of a task should be judged by workers, when one here took `seconds`."""
        self.spent += seconds
        if self.jobs < 2 or left < 2:
            return False
        return self._pool is not None or self.spent + seconds * left >= WORTH

    def judged(self, task: Any, encoders: Sequence[LayerEncoder]) -> Iterator[tuple[LayerEncoder, Any]]:
        """Yield encoders with their `TaskResult` as they are done, or None for one to be judged with the model at hand.

        Those are encoders whose texts are not all in the store or whose score is not a number, and all that are left
        where a worker died (of memory) or the task cannot be pickled. Raises `Unjudged` as `judge` does.
        """
        from joblib.externals.loky import BrokenProcessPool
        from joblib.externals.loky.backend.reduction import dumps

        if not encoders:
            return
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "task.pickle"
            try:
                path.write_bytes(dumps(task))  # with the classes that no module holds
            except Exception:  # whatever a task holds that no pickle takes
                yield from ((encoder, None) for encoder in encoders)
                return
            futures = {self._submit(path, encoder): encoder for encoder in encoders}
            try:
                for future in as_completed(futures):
                    try:
                        found = future.result()
                    except (MissingTexts, BrokenProcessPool, Undefined):
                        found = None
                    yield futures[future], found
            finally:
                for future in futures:
                    future.cancel()

    def _submit(self, path: Path, encoder: LayerEncoder) -> Any:
        from joblib.externals.loky import BrokenProcessPool, ProcessPoolExecutor

        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.jobs, initializer=_start, initargs=(os.getpid(),), env=dict.fromkeys(THREADS, "1")
            )
        try:
            with _deaf():
                return self._pool.submit(_judge, path, encoder)
        except BrokenProcessPool:
            self._end(kill=True)
            return self._submit(path, encoder)

    def _end(self, *, kill: bool) -> None:
        """End the processes; after an error, whatever they are at."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, kill_workers=kill)
            self._pool = None


@contextmanager
def one_thread() -> Iterator[None]:
    """Judge as a worker does: what probes and clusters compute is small, and more threads wait for each other."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), torch_threads(1):
        yield


@contextmanager
def _deaf() -> Iterator[None]:
    """Start processes that never hear Ctrl-C: it is held back for now, which they inherit; this one hears it after."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(parent: int) -> None:
    """Make a process a worker: of one thread, and gone when its parent is."""
    torch.set_num_threads(1)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@lru_cache(maxsize=1)
def _task(path: Path) -> Any:
    return pickle.loads(path.read_bytes())


def _judge(path: Path, encoder: LayerEncoder) -> Any:
    with quiet():
        return judge(_task(path), encoder)


def processes(jobs: int | str, most: int) -> int:
    """Return a number of processes: "auto" is one for each core, and there are never more than layers."""
    from joblib import cpu_count

    return max(1, min(int(cpu_count() if jobs == "auto" else jobs), most))
