"""How long something takes on this machine: warmed up, in turns, with the device waited for."""

import platform
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from layerscope.core.errors import count


@dataclass(frozen=True)
class Stopwatch:
    """Measures calls that run on a device."""

    device: torch.device

    def seconds(self, run: Callable[[], Any]) -> float:
        """Return the seconds of one call, until the device is done with it."""
        start = time.perf_counter()
        run()
        _finish(self.device)
        return time.perf_counter() - start

    def turn(
        self, runs: Sequence[Callable[[], Any]], first: int = 0
    ) -> NDArray[np.float64]:
        """Return the seconds of each call, one after the other, beginning with number `first`."""
        times = np.zeros(len(runs))
        for step in range(len(runs)):
            number = (first + step) % len(runs)
            times[number] = self.seconds(runs[number])
        return times

    def rounds(
        self,
        runs: Sequence[Callable[[], Any]],
        fewest: int,
        most: int,
        seconds: float,
    ) -> NDArray[np.float64]:
        """Return the seconds of each call in each of some rounds, `[rounds, calls]`; a first one is not counted.

        Calls take turns within every round, so that a busy machine slows all of them. There are as
        many rounds as take `seconds`, between `fewest` and `most`.
        """
        self.turn(runs)  # the first allocates, compiles and reads
        once = float(self.turn(runs).sum())
        rounds = rounds_in(seconds, once, fewest, most)
        return np.stack([self.turn(runs, number) for number in range(rounds)])


def error_of_median(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard error of the median over the first axis, of which outliers are no part.

    Source: Rousseeuw, Croux 1993, Alternatives to the median absolute deviation; a median's error
    is 1.2533 that of a
    mean.
    """
    apart = np.abs(times - np.median(times, axis=0))
    deviation = 1.4826 * np.median(apart, axis=0)
    error: NDArray[np.float64] = 1.2533 * deviation / np.sqrt(len(times))
    return error


@dataclass
class Clock:
    """Takes the time from one stage's end to the next; on an accelerator without waiting for it."""

    device: torch.device
    marks: list[tuple[str, Any]] = field(default_factory=list)

    def __call__(self, event: str, *_: int) -> None:
        """Mark the end of a stage."""
        mark: Any = time.perf_counter()
        if self.device.type != "cpu":
            mark = torch.Event(self.device, enable_timing=True)
            mark.record()
        self.marks.append((event, mark))

    def seconds(self) -> list[tuple[str, float]]:
        """Return every stage after the first mark and how long it took, in their order."""
        _finish(self.device)
        pairs = pairwise(self.marks)
        if self.device.type == "cpu":
            return [(event, end - start) for (_, start), (event, end) in pairs]
        return [
            (event, start.elapsed_time(end) / 1e3) for (_, start), (event, end) in pairs
        ]


def rounds_in(seconds: float, once: float, fewest: int, most: int) -> int:
    """Return how many rounds of `once` seconds take `seconds`, between the fewest and the most."""
    return min(most, max(fewest, int(seconds / max(once, 1e-9))))


def machine(device: torch.device) -> str:
    """Return in words what the speed was measured on."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        text = info.read_text(encoding="utf-8", errors="replace")
        if name := re.search(r"^model name\s*: (.+)$", text, re.M):
            processor = name[1]
    return f"{processor}, {count(torch.get_num_threads(), 'thread')}, torch {torch.__version__}"


def _finish(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
