"""Exits at several thresholds, truncation at every depth and the plain model, on the same batches in turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Teller
from layerscope.core.stopwatch import Stopwatch, rounds_in
from layerscope.early_exit.exit_model import ExitModel
from layerscope.early_exit.validation import Rows, Validation, in_order
from layerscope.models.capture import evaluating
from layerscope.models.forward import Inputs, forward
from layerscope.models.inspection import made_up_samples
from layerscope.truncation.agreement import expected_at
from layerscope.truncation.depth import find_depth

SECONDS, ALONE = 60.0, 10.0
"""About how long a race takes, of batches and of single samples; fewer are run where all would take longer."""
ROUNDS = 3
PLAIN = ("plain", 0.0)
Way = Callable[[Inputs], Any]
Name = tuple[str, float]


@dataclass(frozen=True)
class Raced:
    """The seconds of every way to run the batches of `plan`; `notes` tell what was left out."""

    plan: Sequence[Rows]
    seconds: Mapping[Name, float]
    notes: tuple[str, ...]

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
    plan: Sequence[Rows],
    exits: Sequence[int],
    thresholds: Sequence[float],
    teller: Teller,
) -> Raced:
    """Run batches of a plan by the plain model, with exits at each threshold, and by the model cut at each depth.

    The order turns with every batch, so that a busy machine slows all alike; the median over rounds counts.
    """
    cut, notes = _truncated(model)
    raced = _raced(model, read, plan, _ways(model, exits, thresholds) | cut, SECONDS, teller)
    if len(raced.plan) < len(plan):
        notes = (*notes, f"times are of {len(raced.plan)} of {len(plan)} batches, spread over the data")
    return Raced(raced.plan, {**raced.seconds, ("layer", model.depth): raced.seconds[PLAIN]}, notes)


def race_alone(model: ExitModel, read: Validation, exits: Sequence[int], threshold: float, teller: Teller) -> float:
    """Return how many times faster than the plain model exits are where every sample comes alone."""
    raced = _raced(model, read, in_order(len(read), 1), _ways(model, exits, [threshold]), ALONE, teller)
    return raced.speedup(threshold)


def _ways(model: ExitModel, exits: Sequence[int], thresholds: Sequence[float]) -> dict[Name, Way]:
    """Return the plain model, and exits at each threshold."""
    plain: dict[Name, Way] = {PLAIN: partial(forward, model.model)}
    return plain | {("threshold", threshold): _leaving(model, exits, threshold) for threshold in thresholds}


def _raced(
    model: ExitModel, read: Validation, plan: Sequence[Rows], ways: dict[Name, Way], seconds: float, teller: Teller
) -> Raced:
    """Run batches of a plan, spread over it, in all these ways for about so many seconds."""
    with evaluating(model.model):
        first = [read.batch(plan[0])]
        _seconds(ways, first, model.device)  # warms up
        once = float(_seconds(ways, first, model.device).sum())
        fits = rounds_in(seconds, ROUNDS * once, 1, len(plan))
        raced = [plan[i] for i in np.unique(np.linspace(0, len(plan) - 1, fits).astype(int))]
        batches = [read.batch(rows) for rows in raced]
        with teller.bar("exits and depths in turns", ROUNDS * len(batches), "batches") as advance:
            rounds = [_seconds(ways, batches, model.device, advance) for _ in range(ROUNDS)]
    medians = dict(zip(ways, np.median(np.stack(rounds), axis=0).sum(axis=1).tolist(), strict=True))
    return Raced(raced, medians, ())


def _leaving(model: ExitModel, exits: Sequence[int], threshold: float) -> Way:
    def run(inputs: Inputs) -> Any:
        return model.leave(exits, threshold, model.criterion)(**inputs.named)

    return run


def _truncated(model: ExitModel) -> tuple[dict[Name, Way], tuple[str, ...]]:
    """Return a way for each depth, with the weights in the same memory; none where no checkpoint can be that deep."""
    layered = model.layered
    if model.depth == 1:
        return {}, ()
    try:
        expected = expected_at(layered, model.depth // 2, made_up_samples(layered.loaded)[1])
        depth = find_depth(model.model, layered.stack, expected)
        models = {layer: depth.build(model.model, layer) for layer in range(1, model.depth)}
    except LayerscopeError as error:
        return {}, (f"truncation is not measured: {error}",)
    return {("layer", layer): partial(forward, cut) for layer, cut in models.items()}, ()


def _seconds(
    ways: Mapping[Name, Way],
    batches: Sequence[Inputs],
    device: torch.device,
    advance: Callable[[int], None] = lambda batches: None,
) -> NDArray[np.float64]:
    """Return the seconds of each way for each batch, [W, batches]."""
    times = np.zeros((len(ways), len(batches)))
    for column, inputs in enumerate(batches):
        batch = inputs.to(device)
        times[:, column] = Stopwatch(device).turn([partial(way, batch) for way in ways.values()], column)
        advance(1)
    return times
