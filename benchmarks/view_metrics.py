"""LiDAR and DiME of one layer: seconds, and those of the matrix work that they cannot do without.

    python benchmarks/view_metrics.py [--samples 1000] [--views 16] [--width 1024] [--permutations 10] [--threads 2]

LiDAR from float32 states, DiME from float64 ones; the least of three runs each. Bars: LiDAR under 0.5 s, DiME under
0.9 s a layer on two cores.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from layerscope.metrics import dime, lidar
from layerscope.metrics.spectrum import eigenvalues, symmetric_product

ROUNDS = 3


def least(work: Callable[[], Any]) -> tuple[float, float]:
    """Return the least seconds and CPU seconds of a few runs."""
    walls, cpus = [], []
    for _ in range(ROUNDS):
        start, cpu = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - start)
        cpus.append(time.process_time() - cpu)
    return min(walls), min(cpus)


def told(name: str, bar: float, work: Callable[[], Any], floor: Callable[[], Any]) -> None:
    """Print one metric beside its matrix work alone."""
    (wall, cpu), (wall_alone, cpu_alone) = least(work), least(floor)
    print(f"{name}: {wall:.2f} s ({cpu:.2f} CPU s), bar {bar} s; alone {wall_alone:.2f} s ({cpu_alone:.2f} CPU s)")


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--views", type=int, default=16)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--permutations", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    views = torch.randn(args.samples, 1, args.width) + 0.5 * torch.randn(args.samples, args.views, args.width)
    flat = views.double().flatten(0, 1)
    smaller = symmetric_product(views[:, 0].double().mT if args.samples < args.width else views[:, 0].double())
    told("LiDAR", 0.5, lambda: lidar(views), lambda: (symmetric_product(flat), eigenvalues([smaller])))
    a, b = views[:, 0].double(), views[:, 1].double()
    gram = symmetric_product(a.mT)
    joint = [gram] * (args.permutations + 1)
    told("DiME", 0.9, lambda: dime(a, b, permutations=args.permutations), lambda: eigenvalues(joint))


if __name__ == "__main__":
    main()
