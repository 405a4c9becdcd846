"""The seconds of a block and of a check, and a race of exits, truncation and the plain model in turns.

A clock marks the end of each stage of a forward whose rows are made to leave whatever they say.
Of 9 rows one leaves at layer 1, so that the later stages are those of 8 rows of a batch that was
cut down:

    front[9]  block[9]  check[9]  leave[8]  block[8]  check[8]  block[8]  head[8]

The race says how much of what such times promise comes true.
"""

from collections import defaultdict
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
from torch import Tensor

from layerscope.core import LayerscopeError, Reporter, Stopwatch
from layerscope.core.stopwatch import Clock, rounds_in
from layerscope.early_exit.cost_model import Costs, Exits, Plan, Seconds
from layerscope.early_exit.exit_model import ExitModel
from layerscope.early_exit.predictions import NEVER, Floats, sureness
from layerscope.early_exit.validation import Validation
from layerscope.models import Inputs, evaluating
from layerscope.models.forward import forward
from layerscope.truncation.depth import depth_of

SECONDS = 20.0
"""Seconds that rounds over all sizes may take together."""
FEWEST = 3
"""Fewest rounds over all sizes, however long they take."""
MOST = 50
"""Most rounds over all sizes, however quick they are."""
RACE = 60.0
"""About how long a race takes; fewer batches are run where all would take longer."""
FEWEST_TURNS = 12
"""Fewest turns of a race, each on another batch."""
ROUNDS = 3
"""How often the batches may be gone through at most."""
PLAIN = ("plain", 0.0)
Runner = Callable[[Inputs], Any]
Name = tuple[str, float]


def measure_costs(
    model: ExitModel, samples: Validation, batch_size: int, reporter: Reporter
) -> Costs:
    """Return what a block and a check take, by rows, from one to a whole batch.

    The numbers of rows take turns, so that a busy machine slows all of them alike.
    """
    most = min(batch_size, len(samples) - 1)
    powers = [2**k for k in range((most - 1).bit_length())]
    sizes = (*powers, most)
    order = np.random.default_rng(0).permutation(len(samples))
    runs = []
    for size in sizes:
        batch = samples.batch(order[: size + 1])
        runs.append(partial(_stages, model, batch.to(model.device), size))
    warming = sum(Stopwatch(model.device).seconds(run) for run in runs)
    rounds = rounds_in(SECONDS - warming, warming, FEWEST, MOST)
    timings = []
    with reporter.bar("measuring blocks and checks", rounds, "rounds") as advance:
        for _ in range(rounds):
            timings.append([run() for run in runs])
            advance(1)
    blocks, checks = np.median(np.array(timings), axis=0).T
    return Costs(sizes, tuple(blocks), tuple(checks.clip(min=0.0)))


def _stages(model: ExitModel, inputs: Inputs, stay: int) -> tuple[float, float]:
    """Return the seconds of a block, and of a check with the rows that leave, where `stay` rows stay after layer 1."""

    def decide(layer: int, logits: Tensor, rows: Tensor) -> Tensor:
        # computed for the time that it takes: no score reaches infinity
        leaves = sureness(logits) >= NEVER
        leaves[stay:] = True
        return leaves

    clock = Clock(model.device)
    clock("start")
    model.run(inputs, range(1, model.depth), decide, clock)
    took = defaultdict[str, list[float]](list)
    for stage, seconds in clock.seconds():
        took[stage].append(seconds)
    block = fmean(took["block"][1:] or took["block"])
    check = fmean(took["check"][1:] or took["check"] or [0.0])
    return block, check + sum(took["leave"])


@dataclass(frozen=True)
class Raced:
    """How many times faster than the plain model each runner is, with the standard error; `milliseconds` a sample."""

    speedups: dict[Name, tuple[float, float]]
    milliseconds: float
    notes: tuple[str, ...]


def race_exits(
    model: ExitModel,
    samples: Validation,
    plan: Plan,
    exits: Exits,
    thresholds: tuple[float, ...],
    reporter: Reporter,
) -> Raced:
    """Run batches of a plan by the plain model, with exits at each threshold, and by the model cut at each depth."""
    runners: dict[Name, Runner] = {PLAIN: partial(forward, model.model)}
    for threshold in thresholds:
        leaving = copy(model).leave(exits, threshold)
        runners["threshold", threshold] = partial(forward, leaving)
    notes = []
    try:
        if model.depth > 1:
            depth = depth_of(model.layered)
            for layer in range(1, model.depth):
                cut = depth.build(model.model, range(layer))
                runners["layer", layer] = partial(forward, cut)
    except LayerscopeError as error:
        notes.append(f"truncation is not measured: {error}")
    raced, seconds = _race(model, samples, plan, runners, reporter)
    if len(raced) < len(plan):
        notes.append(
            f"times are of {len(raced)} of {len(plan)} batches, spread over the data"
        )
    plain = seconds["layer", model.depth] = seconds[PLAIN]
    milliseconds = 1e3 * _total(plain) / sum(map(len, raced))
    speedups = {name: speedup(plain, took) for name, took in seconds.items()}
    return Raced(speedups, milliseconds, tuple(notes))


def speedup(plain: Seconds, other: Seconds) -> tuple[float, float]:
    """Return how many times faster than the plain model another runner is, and the standard error of that.

    Both are seconds `[turns, batches]`. Of each batch the median turn counts, so that a moment in
    which the machine was busy does not; the error is that of a ratio of sums, from how every pair
    of runs, one after the other, departs from it (Cochran 1977, Sampling Techniques, equation
    2.46).
    """
    ratio = _total(plain) / _total(other)
    runs = plain.size
    squares = np.square(plain - ratio * other).sum()
    error = np.sqrt(runs / (runs - 1) * squares) / other.sum()
    return ratio, float(error)


def _total(seconds: Seconds) -> float:
    """Return the seconds of all batches, of each the median turn."""
    return float(np.median(seconds, axis=0).sum())


def _race(
    model: ExitModel,
    samples: Validation,
    plan: Plan,
    runners: dict[Name, Runner],
    reporter: Reporter,
) -> tuple[Plan, dict[Name, Seconds]]:
    """Run batches of a plan, spread over it, for about a minute; the runners take turns on every batch.

    Returns these batches, and the seconds of each runner `[turns, batches]`.
    """

    def timed(inputs: Inputs, first: int = 0) -> Floats:
        batch = inputs.to(model.device)
        runs = [partial(run, batch) for run in runners.values()]
        return Stopwatch(model.device).turn(runs, first)

    with evaluating(model.model):
        first = samples.batch(plan[0])
        timed(first)  # warms up
        most = max(FEWEST_TURNS, ROUNDS * len(plan))
        once = float(timed(first).sum())
        turns = rounds_in(RACE, once, FEWEST_TURNS, most)
        spread = np.linspace(0, len(plan) - 1, min(turns, len(plan)))
        raced = [plan[i] for i in np.unique(spread.astype(int))]
        batches = [samples.batch(rows) for rows in raced]
        rounds = turns // len(batches)
        times = np.zeros((len(runners), rounds, len(batches)))
        total = rounds * len(batches)
        with reporter.bar("exits and depths, interleaved", total, "batches") as advance:
            for turn, number in np.ndindex(rounds, len(batches)):
                times[:, turn, number] = timed(batches[number], turn + number)
                advance(1)
    return raced, dict(zip(runners, times, strict=True))
