"""Random data sets and times, and what a run costs by a walk through every batch, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from layerscope.early_exit.cost_model import STAGES, Plan, Prediction, Simulation, Times
from layerscope.early_exit.predictions import Recorded


def random_times(
    rng: np.random.Generator,
    rows: tuple[int, ...] = (1, 2, 4, 8, 32),
    tokens: tuple[int, ...] = (4, 16, 40),
) -> Times:
    """Times that grow with rows and tokens from a cost of their own; a block is the dearest."""
    work = np.multiply.outer(np.asarray(rows), np.asarray(tokens))
    dear = dict(zip(STAGES, (20, 100, 5, 5, 10, 3), strict=True))
    return Times(
        rows,
        tokens,
        {s: dear[s] * (rng.uniform(10, 100) + rng.uniform(0.5, 1) * work) for s in STAGES},
    )


def random_recorded(
    rng: np.random.Generator, n: int, depth: int, criterion: str = "confidence"
) -> Recorded:
    """Samples that grow surer with depth, each at its own pace."""
    pace = rng.uniform(0.2, 3, (n, 1))
    scores = 1 - np.exp(-pace * np.arange(1, depth + 1) / depth) * rng.uniform(0.5, 1, (n, depth))
    right = rng.uniform(size=(n, depth)) < scores
    predictions = np.where(right, 0, rng.integers(1, 3, (n, depth))).astype(np.int64)
    return Recorded(criterion, 3, scores, predictions, rng.integers(2, 50, n))


def split(samples: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """Batches of a size, the last one what is left."""
    return [samples[start : start + size] for start in range(0, len(samples), size)]


def predict(
    recorded: Recorded,
    plan: Plan,
    exits: Sequence[int],
    threshold: float,
    times: Times,
    *,
    trims: bool = True,
) -> Prediction:
    """What a data set costs in the batches of a plan when rows leave at these exits."""
    return Simulation(recorded, plan, times, trims=trims).run(exits, threshold)


def seconds_at(times: Times, stage: str, rows: float, tokens: float) -> float:
    """The seconds of a stage at one size."""
    return float(times.at(stage, np.array([rows]), np.array([tokens]))[0, 0])


def slow_seconds(
    recorded: Recorded,
    plan: Plan,
    exits: Sequence[int],
    threshold: float,
    times: Times,
    *,
    trims: bool,
) -> float:
    """Return the seconds of a run whose rows leave one by one."""
    leaves = recorded.leaves(exits, threshold)
    total = 0.0

    def took(stage: str, inside: list[int], batch: list[int]) -> float:
        longest = max(recorded.lengths[sample] for sample in (inside if trims else batch))
        return seconds_at(times, stage, len(inside), longest)

    for batch in (list(map(int, b)) for b in plan):
        if not batch:
            continue
        inside = batch
        total += took("front", inside, batch)
        for layer in range(1, recorded.depth + 1):
            total += took("block", inside, batch)
            if layer not in exits:
                continue
            total += took("check", inside, batch)
            staying = [sample for sample in inside if leaves[sample] > layer]
            if staying and len(staying) < len(inside):
                total += took("leave", staying, batch)
            inside = staying
            if not inside:
                break
        else:
            total += took("head" if inside == batch else "check", inside, batch)
        if inside != batch:
            total += seconds_at(
                times, "end", len(batch), max(recorded.lengths[sample] for sample in batch)
            )
    return total
