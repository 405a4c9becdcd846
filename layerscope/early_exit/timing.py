"""The seconds of every stage of a run with exits, and a race of exits, truncation and the plain model in turns.

A clock marks the end of each stage of a forward. With exits at layers 1 and 2 of 3, of 8 rows of
which 5 leave at layer 1:

    front[8]  block[8]  check[8]  leave[3]  block[3]  check[3]  block[3]  head[3]  end[8]

Each stage is timed at some numbers of rows and lengths, on batches of that size and on what remains
of batches twice as large, since what is left of a batch runs with colder caches than a whole one.
Rows are made to leave whatever they say. What a run costs is then a sum over its stages (see
`cost_model`); the race says how much of that comes true.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Reporter
from layerscope.core.stopwatch import Clock, Stopwatch, rounds_in
from layerscope.early_exit.cost_model import STAGES, Plan, Rows, Seconds, Times
from layerscope.early_exit.exit_model import ExitModel
from layerscope.early_exit.predictions import NEVER, sureness
from layerscope.early_exit.validation import Validation, in_order
from layerscope.models.capture import evaluating
from layerscope.models.forward import Inputs, forward
from layerscope.truncation.depth import depth_of

BARE = "bare"
"""The share of the stages of a whole batch that the model without hooks takes."""
SECONDS = 20.0
FEWEST, MOST = 3, 50
"""Rounds over all sizes: as many as fit into these seconds, between these."""
RACE, ALONE = 60.0, 10.0
"""About how long a race takes, of batches and of single samples; fewer are run where all would take longer."""
FEWEST_TURNS, ROUNDS = 12, 3
"""Fewest turns of a race, each on another batch, and how often the batches may be gone through at most."""
PLAIN = ("plain", 0.0)
Runner = Callable[[Inputs], Any]
Name = tuple[str, float]


def measure_times(
    model: ExitModel, samples: Validation, lengths: Rows, plan: Plan, reporter: Reporter
) -> Times:
    """Return what each stage takes, at sizes from a row and the shortest length to the plan's largest batch.

    Rows, of `lengths` [N], are made to leave whatever they say, so that every stage is met at every
    size. The sizes take turns, so that a busy machine slows all of them alike.
    """
    most = max(map(len, plan))
    rows = (*(2**k for k in range(most.bit_length()) if 2**k < most), most)
    occurring = np.unique(lengths[np.concatenate(plan)])
    shortest, longest = int(occurring[0]), int(occurring[-1])
    middle = int(occurring[np.abs(occurring - (shortest + longest) / 2).argmin()])
    tokens = tuple(sorted({shortest, middle, longest}))

    def batch(rows: int, tokens: int) -> Inputs:
        longest = int((lengths == tokens).argmax())
        others = np.random.default_rng(0).choice(np.flatnonzero(lengths <= tokens), rows - 1)
        return samples.batch(np.array([longest, *others])).to(model.device)

    sizes = [
        (b, b == most, batch(b, t), batch(min(2 * b, most + 1), t)) for b in rows for t in tokens
    ]
    warming = 0.0
    with reporter.bar("warming up", len(sizes), "sizes") as advance:
        for size in sizes:
            warming += Stopwatch(model.device).seconds(partial(_measured, model, *size))
            advance(1)
    rounds = rounds_in(SECONDS - warming, warming, FEWEST, MOST)
    timings: list[dict[str, list[float]]] = [defaultdict(list) for _ in sizes]
    with reporter.bar("measuring stages", rounds * len(sizes), "sizes") as advance:
        for _ in range(rounds):
            for size, timing in zip(sizes, timings, strict=True):
                for stage, took in _measured(model, *size).items():
                    timing[stage].append(took)
                advance(1)
    tables = {}
    for stage in STAGES:
        medians = [max(median(timing[stage] or [0.0]), 0.0) for timing in timings]
        tables[stage] = np.array(medians).reshape(len(rows), len(tokens))
    bare = median(share for timing in timings for share in timing[BARE])
    return Times(rows, tokens, tables, bare)


def _measured(
    model: ExitModel, rows: int, largest: bool, batch: Inputs, larger: Inputs
) -> dict[str, float]:
    """Return the seconds of each stage, of runs as they come: batches that stay whole, and batches that are cut down.

    The second run of the largest batch counts, which is met whole, time after time; a smaller one
    is what remains of a `larger`, with cold caches. A stage that comes often counts with its mean.
    What a check, or rows that leave, add to the block that follows is their own cost: an
    accelerator that has answered has nothing queued.
    """
    whole = _run(model, batch, (), rows)
    if largest:
        bare = sum(_run(model, batch, None, rows)["end"])
        whole = _run(model, batch, (), rows)
    block = fmean(whole["block"])
    seconds = {"front": sum(whole["front"]), "head": sum(whole["head"] + whole["end"])}
    if model.depth > 1:
        after_leaving, *later = _run(model, larger, (1,), rows)["block"][1:]
        if later and not largest:
            block = fmean(later)
        parted = _run(model, larger, range(1, model.depth), rows)
        checked = fmean(parted["block"][2:] or [block])
        seconds["check"] = fmean(parted["check"][1:] or parted["check"]) + checked - block
        seconds["leave"] = sum(parted["leave"]) + after_leaving - block
        seconds["end"] = sum(parted["end"])
    if largest:
        seconds[BARE] = bare / sum(map(sum, whole.values()))
    return seconds | {"block": block}


def _run(
    model: ExitModel, inputs: Inputs, exits: Sequence[int] | None, stay: int
) -> dict[str, list[float]]:
    """Run a batch, of which `stay` rows stay after the first exit (None: the bare model); return the times by stage."""

    def decide(layer: int, logits: Tensor, rows: Tensor) -> Tensor:
        leaves = sureness(logits, model.criterion) > 2  # none, in the time that a check takes
        leaves[stay:] = True
        return leaves

    clock = Clock(model.device)
    clock("start")
    model.run(inputs, exits or (), decide, None if exits is None else clock)
    clock("end")
    by_stage: dict[str, list[float]] = defaultdict(list)
    for stage, seconds in clock.seconds():
        by_stage[stage].append(seconds)
    return by_stage


@dataclass(frozen=True)
class Raced:
    """How many times faster than the plain model every runner is on the batches of `plan`; its ms are a sample's.

    `errors` are the standard errors of the speed-ups.
    """

    plan: Plan
    speedups: Mapping[Name, float]
    errors: Mapping[Name, float]
    plain_milliseconds: float
    notes: tuple[str, ...]

    @property
    def never(self) -> tuple[float, float]:
        """The speed-up of exits that no sample takes, which should be 1, and its error."""
        return self.speedups["threshold", NEVER], self.errors["threshold", NEVER]


def race_exits(
    model: ExitModel,
    samples: Validation,
    plan: Plan,
    exits: Sequence[int],
    thresholds: Sequence[float],
    reporter: Reporter,
) -> Raced:
    """Run batches of a plan by the plain model, with exits at each threshold, and by the model cut at each depth."""
    runners, notes = _with_exits(model, exits, (*thresholds, NEVER)), []
    try:
        if model.depth > 1:
            depth = depth_of(model.layered)
            for layer in range(1, model.depth):
                cut = depth.build(model.model, range(layer))
                runners["layer", layer] = partial(forward, cut)
    except LayerscopeError as error:
        notes.append(f"truncation is not measured: {error}")
    raced, seconds = _race(model, samples, plan, runners, RACE, reporter)
    if len(raced) < len(plan):
        notes.append(f"times are of {len(raced)} of {len(plan)} batches, spread over the data")
    plain = seconds["layer", model.depth] = seconds[PLAIN]
    speedups, errors = {}, {}
    for name, took in seconds.items():
        speedups[name], errors[name] = speedup(plain, took)
    milliseconds = 1e3 * float(np.median(plain, axis=0).sum()) / sum(map(len, raced))
    return Raced(raced, speedups, errors, milliseconds, tuple(notes))


def race_alone(
    model: ExitModel,
    samples: Validation,
    exits: Sequence[int],
    threshold: float,
    reporter: Reporter,
) -> tuple[float, float]:
    """Return how many times faster than the plain model exits are where every sample comes alone, and its error."""
    runners, plan = _with_exits(model, exits, [threshold]), in_order(len(samples), 1)
    _, seconds = _race(model, samples, plan, runners, ALONE, reporter)
    return speedup(seconds[PLAIN], seconds["threshold", threshold])


def speedup(plain: Seconds, other: Seconds) -> tuple[float, float]:
    """Return how many times faster than the plain model another runner is, and the standard error of that.

    Both are seconds `[turns, batches]`. Of each batch the median turn counts, so that a moment in
    which the machine was busy does not; the error is that of a ratio of sums, from how every pair
    of runs, one after the other, departs from it (Cochran 1977, Sampling Techniques, equation
    2.46).
    """
    ratio = float(np.median(plain, axis=0).sum() / np.median(other, axis=0).sum())
    runs = plain.size
    if runs < 2:
        return ratio, math.nan
    departures = plain - ratio * other
    return ratio, float(np.sqrt(runs / (runs - 1) * np.square(departures).sum()) / other.sum())


def _with_exits(
    model: ExitModel, exits: Sequence[int], thresholds: Sequence[float]
) -> dict[Name, Runner]:
    """Return the plain model, and exits at each threshold."""

    def run(threshold: float, inputs: Inputs) -> Any:
        return model.leave(exits, threshold, model.criterion)(*inputs.args, **inputs.named)

    with_exits: dict[Name, Runner] = {("threshold", t): partial(run, t) for t in thresholds}
    return {PLAIN: partial(forward, model.model)} | with_exits


def _race(
    model: ExitModel,
    samples: Validation,
    plan: Plan,
    runners: dict[Name, Runner],
    seconds: float,
    reporter: Reporter,
) -> tuple[Plan, dict[Name, Seconds]]:
    """Run batches of a plan, spread over it, for about this many seconds.

    Returns these batches, and the seconds of each runner `[turns, batches]`. The runners take turns
    on every batch.
    """

    def timed(inputs: Inputs, first: int = 0) -> NDArray[np.float64]:
        batch = inputs.to(model.device)
        runs = [partial(run, batch) for run in runners.values()]
        return Stopwatch(model.device).turn(runs, first)

    with evaluating(model.model):
        first = samples.batch(plan[0])
        timed(first)  # warms up
        most = max(FEWEST_TURNS, ROUNDS * len(plan))
        turns = rounds_in(seconds, float(timed(first).sum()), FEWEST_TURNS, most)
        spread = np.linspace(0, len(plan) - 1, min(turns, len(plan)))
        raced = [plan[i] for i in np.unique(spread.astype(int))]
        batches = [samples.batch(rows) for rows in raced]
        times = np.zeros((max(1, turns // len(batches)), len(batches), len(runners)))
        total = times[..., 0].size
        with reporter.bar("exits and depths, interleaved", total, "batches") as advance:
            for turn, number in np.ndindex(*times.shape[:2]):
                times[turn, number] = timed(batches[number], turn + number)
                advance(1)
    return raced, dict(zip(runners, np.moveaxis(times, 2, 0), strict=True))
