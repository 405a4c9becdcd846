"""LiDAR and DiME of one layer: seconds, and those of the matrix work that they cannot do without.

    python benchmarks/view_metrics.py [--samples 1000] [--views 16] [--width 1024] [--permutations
    10] [--threads 2]

LiDAR from float32 states, DiME from float64 ones; the least of three runs each. Both are compared
with their formulas written out (an error where they differ by more than 1e-8), with DiME's
permutations given. Bars: LiDAR under 0.5 s, DiME under 0.9 s a layer on two cores.
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


def plain_lidar(views: torch.Tensor, delta: float = 1e-4) -> float:
    """Return LiDAR as its formula says it."""
    means = views.mean(1)
    spread = (views - means[:, None]).flatten(0, 1)
    within = spread.mT @ spread / (len(spread) - len(views)) + delta * torch.eye(
        views.shape[-1]
    ).to(views)
    values, axes = torch.linalg.eigh(within)
    root = (axes / values.sqrt()) @ axes.mT
    found = torch.linalg.eigvalsh(root @ torch.cov(means.mT) @ root).clamp(min=0)
    return float(torch.special.entr(found / found.sum()).sum().exp())


def plain_dime(a: torch.Tensor, b: torch.Tensor, orders: torch.Tensor) -> float:
    """Return DiME as its formula says it."""
    first, second = (rows / rows.norm(dim=1, keepdim=True) for rows in (a, b))

    def entropy(other: torch.Tensor) -> float:
        values = torch.linalg.eigvalsh((first @ first.mT) * (other @ other.mT)).clamp(
            min=0
        )
        return float(torch.special.entr(values / values.sum()).sum())

    return sum(entropy(second[order]) for order in orders) / len(orders) - entropy(
        second
    )


def check_equal(name: str, found: float, plain: float) -> None:
    """Raise where a metric is not what its formula says."""
    if not abs(found - plain) <= 1e-8 * max(1.0, abs(plain)):
        raise SystemExit(f"{name} is {found!r}, its formula gives {plain!r}")


def told(
    name: str, bar: float, work: Callable[[], Any], floor: Callable[[], Any]
) -> None:
    """Print one metric beside its matrix work alone."""
    (wall, cpu), (wall_alone, cpu_alone) = least(work), least(floor)
    print(
        f"{name}: {wall:.2f} s ({cpu:.2f} CPU s), bar {bar} s; alone {wall_alone:.2f} s ({cpu_alone:.2f} CPU s)"
    )


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
    views = torch.randn(args.samples, 1, args.width) + 0.5 * torch.randn(
        args.samples, args.views, args.width
    )
    flat = views.double().flatten(0, 1)
    smaller = symmetric_product(
        views[:, 0].double().mT if args.samples < args.width else views[:, 0].double()
    )
    check_equal("LiDAR", float(lidar(views)), plain_lidar(views.double()))
    told(
        "LiDAR",
        0.5,
        lambda: lidar(views),
        lambda: (symmetric_product(flat), eigenvalues([smaller])),
    )
    a, b = views[:, 0].double(), views[:, 1].double()
    orders = torch.stack(
        [torch.randperm(args.samples) for _ in range(args.permutations)]
    )
    check_equal(
        "DiME", float(dime(a, b, permutations=orders)), plain_dime(a, b, orders)
    )
    gram = symmetric_product(a.mT)
    joint = [gram] * (args.permutations + 1)
    told(
        "DiME",
        0.9,
        lambda: dime(a, b, permutations=args.permutations),
        lambda: eigenvalues(joint),
    )


if __name__ == "__main__":
    main()
