"""Exits at several thresholds, truncation at every depth and the plain model, on the same batches in turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Reporter
from layerscope.core.stopwatch import Stopwatch, rounds_in
from layerscope.early_exit.cost_model import Plan
from layerscope.early_exit.exit_model import ExitModel
from layerscope.early_exit.validation import Validation, in_order
from layerscope.models.capture import evaluating
from layerscope.models.forward import Inputs, forward
from layerscope.models.inspection import made_up_samples
from layerscope.truncation.depth import depth_of

SECONDS, ALONE = 60.0, 10.0
"""About how long a race takes, of batches and of single samples; fewer are run where all would take longer."""
ROUNDS = 3
PLAIN = ("plain", 0.0)
Runner = Callable[[Inputs], Any]
Name = tuple[str, float]


@dataclass(frozen=True)
class Raced:
    """The seconds that every runner takes for the batches of `plan`; `notes` say what was left out."""

    plan: Plan
    seconds: Mapping[Name, float]
    notes: tuple[str, ...] = ()

    @property
    def plain_milliseconds(self) -> float:
        """A sample's share of the plain model's time."""
        return 1e3 * self.seconds[PLAIN] / sum(map(len, self.plan))

    def speedup(self, threshold: float) -> float:
        """Return how many times faster than the plain model exits with this threshold are."""
        return self.seconds[PLAIN] / self.seconds["threshold", threshold]

    def truncated(self, layer: int) -> float:
        """Return how many times faster the model is that ends at a layer, NaN where it could not be made."""
        return self.seconds[PLAIN] / self.seconds.get(("layer", layer), math.nan)


def race_exits(
    model: ExitModel,
    read: Validation,
    plan: Plan,
    exits: Sequence[int],
    thresholds: Sequence[float],
    reporter: Reporter,
) -> Raced:
    """Run batches of a plan by the plain model, with exits at each threshold, and by the model cut at each depth.

    The order turns with every batch, so that a busy machine slows all alike; the median over rounds counts.
    """
    cut, notes = _truncated(model)
    raced = _raced(model, read, plan, _with_exits(model, exits, thresholds) | cut, SECONDS, reporter)
    if len(raced.plan) < len(plan):
        notes = (*notes, f"times are of {len(raced.plan)} of {len(plan)} batches, spread over the data")
    return replace(raced, seconds={**raced.seconds, ("layer", model.depth): raced.seconds[PLAIN]}, notes=notes)


def race_alone(model: ExitModel, read: Validation, exits: Sequence[int], threshold: float, reporter: Reporter) -> float:
    """Return how many times faster than the plain model exits are where every sample comes alone."""
    runners = _with_exits(model, exits, [threshold])
    return _raced(model, read, in_order(len(read), 1), runners, ALONE, reporter).speedup(threshold)


def _with_exits(model: ExitModel, exits: Sequence[int], thresholds: Sequence[float]) -> dict[Name, Runner]:
    """Return the plain model, and exits at each threshold."""

    def run(threshold: float, inputs: Inputs) -> Any:
        return model.leave(exits, threshold, model.criterion)(**inputs.named)

    return {PLAIN: partial(forward, model.model)} | {("threshold", t): partial(run, t) for t in thresholds}


def _truncated(model: ExitModel) -> tuple[dict[Name, Runner], tuple[str, ...]]:
    """Return the model cut at each depth, its weights in the same memory; none where no checkpoint can be that deep."""
    if model.depth == 1:
        return {}, ()
    try:
        depth = depth_of(model.layered, made_up_samples(model.layered.loaded)[1])
        models = {layer: depth.build(model.model, layer) for layer in range(1, model.depth)}
    except LayerscopeError as error:
        return {}, (f"truncation is not measured: {error}",)
    return {("layer", layer): partial(forward, cut) for layer, cut in models.items()}, ()


def _raced(
    model: ExitModel, read: Validation, plan: Plan, runners: dict[Name, Runner], seconds: float, reporter: Reporter
) -> Raced:
    """Run batches of a plan, spread over it, by all these runners for about this many seconds."""

    def timed(inputs: Inputs, first: int = 0) -> NDArray[np.float64]:
        batch = inputs.to(model.device)
        return Stopwatch(model.device).turn([partial(run, batch) for run in runners.values()], first)

    with evaluating(model.model):
        first = read.batch(plan[0])
        timed(first)  # warms up
        fits = rounds_in(seconds, ROUNDS * float(timed(first).sum()), 1, len(plan))
        raced = [plan[i] for i in np.unique(np.linspace(0, len(plan) - 1, fits).astype(int))]
        batches = [read.batch(rows) for rows in raced]
        times = np.zeros((ROUNDS, len(batches), len(runners)))
        with reporter.bar("exits and depths in turns", ROUNDS * len(batches), "batches") as advance:
            for turn, number in np.ndindex(*times.shape[:2]):
                times[turn, number] = timed(batches[number], number)
                advance(1)
    return Raced(raced, dict(zip(runners, np.median(times, axis=0).sum(axis=0).tolist(), strict=True)))
