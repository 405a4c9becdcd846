"""All pairs of layers at once, against a loop over pairs: linear debiased CKA and cosine similarity, exact, in float64.

    python benchmarks/similarity.py [--layers 25] [--samples 10000] [--width 1024] [--naive 5]
    [--threads 2]

Random float32 states lie in memory. Printed: seconds (CPU seconds) of each matrix and their peak
memory above the input, sampled while they run; the seconds of matrix products alone, of the size of
a tile, that CKA of so many layers cannot do without; the loop's on a few pairs, and what it would
take for all. Bars: both matrices under 60 s and under 2 GiB on two cores.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from layerscope.metrics import cka, cosine_similarity, similarity_matrix
from layerscope.metrics.blocks import opened

SECONDS, GIB = 60.0, 2.0


class Peak:
    """The most resident memory above that at the start, in GiB, looked at every 5 ms."""

    def __enter__(self) -> Peak:
        self._start = self.most = resident()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def gib(self) -> float:
        """How much came on top."""
        return (self.most - self._start) / 2**30

    def _look(self) -> None:
        while not self._over.wait(0.005):
            self.most = max(self.most, resident())


def resident() -> int:
    """Return this process's resident memory in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return the seconds and CPU seconds of some work, and its result."""
    start, cpu = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - start, time.process_time() - cpu, result


def floor(states: torch.Tensor) -> tuple[float, float, float]:
    """Return the least operations of all Grams' halves and their products, in 1e9, and this machine's rate of them."""
    samples, layers, width = states.shape
    needed = (
        samples * (samples + 1) * (layers * width + layers * (layers + 1) / 2) / 1e9
    )
    side = opened(states, None, True)[0].spans[0].stop
    a, b = torch.randn(2, side, width, dtype=torch.float64)
    out = torch.empty(side, side, dtype=torch.float64)
    torch.matmul(a, b.mT, out=out)
    rounds = min(1000, max(1, int(2e11 / (2 * side * side * width))))
    wall, cpu, _ = timed(
        lambda: [torch.matmul(a, b.mT, out=out) for _ in range(rounds)]
    )
    done = 2 * side * side * width * rounds / 1e9
    return needed, done / wall, done / cpu


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=25)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--naive", type=int, default=5, help="pairs of the loop")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    states = torch.randn(args.samples, args.layers, args.width)
    for layer in range(1, args.layers):
        states[:, layer] += states[:, layer - 1]
    needed, rate, cpu_rate = floor(states)
    print(
        f"{args.layers} layers, N = {args.samples:,}, D = {args.width:,}, {args.threads} threads"
    )
    print(
        f"products alone: {needed:,.0f} GFLOP at {rate:.0f} GFLOP/s ({cpu_rate:.0f} a CPU second): "
        f"{needed / rate:.1f} s ({needed / cpu_rate:.1f} CPU s)"
    )
    found, total, most = {}, 0.0, 0.0
    for metric in ("cka", "cosine_similarity"):
        with Peak() as peak:
            wall, cpu, found[metric] = timed(
                lambda metric=metric: similarity_matrix(states, metric)
            )
        total, most = total + wall, max(most, peak.gib)
        print(
            f"{metric}: {wall:.1f} s ({cpu:.1f} CPU s), {peak.gib:.2f} GiB above the input"
        )
    print(
        f"together: {total:.1f} s (bar {SECONDS:.0f}), {most:.2f} GiB (bar {GIB:.0f})"
    )
    if args.naive:
        pairs = [
            (i * 7 % args.layers, (i * 11 + 3) % args.layers) for i in range(args.naive)
        ]
        wall, cpu, values = timed(
            lambda: [
                (
                    cka(states[:, a], states[:, b]),
                    float(cosine_similarity(states[:, a], states[:, b]).mean()),
                )
                for a, b in pairs
            ]
        )
        every = args.layers * (args.layers + 1) // 2 / args.naive
        print(
            f"a loop: {wall:.1f} s ({cpu:.1f} CPU s) for {args.naive} pairs, about {every * wall:.0f} s "
            f"({every * cpu:.0f} CPU s) for all"
        )
        off = max(
            max(
                abs(float(found["cka"][p]) - v),
                abs(float(found["cosine_similarity"][p]) - w),
            )
            for p, (v, w) in zip(pairs, values, strict=True)
        )
        print(f"largest difference to the loop: {off:.0e}")
        if not off < 1e-9:
            raise SystemExit("the two sides differ")


if __name__ == "__main__":
    main()
