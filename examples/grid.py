"""What the recipes share: the same training for each objective and seed, by the command a user types, and its table."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd

import layerscope

Table = pd.DataFrame
"""A row a layer; columns (objective, seed)."""


def arguments(description: str, out: str, **more: str) -> argparse.Namespace:
    """Return the recipe's options; `more` are paths of data with their defaults."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path(out))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="trainings at a time"
    )
    for name, default in more.items():
        parser.add_argument(f"--{name}", type=Path, default=Path(default))
    return parser.parse_args()


def run(
    given: argparse.Namespace,
    command: Sequence[str],
    objectives: dict[str, Sequence[str]],
    metric: str,
) -> Table:
    """Train every objective with every seed, and return a metric by layer as it stood after the last step.

    `command` is what follows `layerscope train`, `objectives` the options of each. Trainings that
    are finished are not repeated, one that was killed goes on.
    """
    start = time.perf_counter()
    cells = [(name, seed) for seed in range(given.seeds) for name in objectives]
    threads = max(1, (os.cpu_count() or 1) // given.jobs)

    def one(cell: tuple[str, int]) -> pd.Series:
        name, seed = cell
        out = given.out / f"{name}-{seed}"
        words = [*command, *objectives[name], "--seed", str(seed), "--out", str(out)]
        print("layerscope train", shlex.join(words), flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "layerscope", "train", *words],
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(done.stderr.strip().splitlines()[-1])
        return layerscope.open_run(out / "history").metric(metric).loc[1:]

    with ThreadPoolExecutor(given.jobs) as pool:
        found = dict(zip(cells, pool.map(one, cells), strict=True))
    table = pd.DataFrame(found)
    table.columns = pd.MultiIndex.from_tuples(cells, names=["objective", "seed"])
    table.to_csv(given.out / f"{metric}.csv")
    print(f"\n{len(cells)} trainings in {(time.perf_counter() - start) / 60:.1f} min\n")
    return table


def show(table: Table, unit: Callable[[float], str]) -> None:
    """Print mean and spread (lowest to highest seed) of each objective by layer."""
    names = list(table.columns.unique("objective"))
    told = pd.DataFrame(
        {
            name: [
                f"{unit(row.mean())} ({unit(row.min())}–{unit(row.max())})"
                for _, row in table[name].iterrows()
            ]
            for name in names
        },
        index=table.index,
    )
    print(told.to_string())


def verdict(claim: str, values: Sequence[float], holds: bool) -> None:
    """Print whether a claim held, with the value of each seed."""
    print(
        f"{'held' if holds else 'did NOT hold'}: {claim}: {', '.join(f'{value:.2f}' for value in values)} by seed"
    )
