"""The seconds of every stage of a run with early exits, measured on this machine, this model and these samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.core.progress import Silent, Teller
from layerscope.core.stopwatch import Clock, Stopwatch, rounds_in
from layerscope.early_exit.cost_model import STAGES, Plan, Times
from layerscope.early_exit.criteria import sureness
from layerscope.early_exit.exit_model import ExitModel
from layerscope.models.forward import Inputs

SECONDS = 20.0
BARE = "bare"
FEWEST, MOST = 2, 50
"""Rounds over all sizes: as many as fit into so many seconds, between these."""


@dataclass(frozen=True)
class Cell:
    """One size of a batch: the `whole` of it runs to the end; of `parted`, up to twice as large, `rows` stay."""

    place: tuple[int, int]
    rows: int
    largest: bool
    whole: Inputs
    parted: Inputs


def measure_times(
    model: ExitModel,
    samples: Sequence[Any],
    lengths: NDArray[np.int64],
    plan: Plan,
    *,
    seconds: float | None = None,
    teller: Teller | None = None,
) -> Times:
    """Return what each stage takes, at sizes from a row and the shortest length to the plan's largest batch.

    Rows are made to leave whatever they say, so that every stage is met at every size. The sizes take turns, so that a
    busy machine slows all of them alike.

    Args:
        model: as it will be run, with its criterion.
        samples: N samples, as the model's encoder takes them.
        lengths: [N] their positions.
        plan: the batches whose time will be asked for: numbers of samples, not all empty.
        seconds: about how long this takes, None is 20; at least three rounds over all sizes.
        teller: shows a bar.

    """
    teller = teller or Silent()
    rows, tokens = _row_sizes(plan), _token_sizes(lengths, plan)
    cells = [
        Cell(
            (i, j),
            b,
            b == rows[-1],
            _batch(model, samples, lengths, b, t),
            _batch(model, samples, lengths, min(2 * b, rows[-1] + 1), t),
        )
        for i, b in enumerate(rows)
        for j, t in enumerate(tokens)
    ]
    warming = 0.0
    with teller.bar("warming up", len(cells), "sizes") as advance:
        for cell in cells:
            warming += Stopwatch(model.device).seconds(partial(_measured, model, cell))
            advance(1)
    rounds = rounds_in((seconds or SECONDS) - warming, warming, FEWEST, MOST)
    found: dict[str, dict[tuple[int, int], list[float]]] = {stage: defaultdict(list) for stage in (*STAGES, BARE)}
    with teller.bar("measuring stages", rounds * len(cells), "sizes") as advance:
        for cell in cells * rounds:
            for stage, took in _measured(model, cell).items():
                found[stage][cell.place].append(took)
            advance(1)
    tables = {stage: np.zeros((len(rows), len(tokens))) for stage in STAGES}
    for stage, table in tables.items():
        for place, times in found[stage].items():
            table[place] = max(np.median(times), 0.0)
    return Times(rows, tokens, tables, float(np.median([share for shares in found[BARE].values() for share in shares])))


def _row_sizes(plan: Plan) -> tuple[int, ...]:
    """Return powers of two up to the largest batch, and that."""
    largest = max(map(len, plan))
    return tuple(2**k for k in range(largest.bit_length()) if 2**k < largest) + (largest,)


def _token_sizes(lengths: NDArray[np.int64], plan: Plan) -> tuple[int, ...]:
    """Return the lengths of the shortest and of the longest sample of the plan, and of one between."""
    found = np.unique(np.concatenate([lengths[batch] for batch in plan]))
    middle = found[np.abs(found - (found[0] + found[-1]) / 2).argmin()]
    return tuple(sorted({int(found[0]), int(middle), int(found[-1])}))


def _batch(model: ExitModel, samples: Sequence[Any], lengths: NDArray[np.int64], rows: int, tokens: int) -> Inputs:
    """Return a batch whose first sample is the longest, with that many tokens, and the others are drawn."""
    longest = int((lengths == tokens).argmax())
    others = np.random.default_rng(0).choice(np.flatnonzero(lengths <= tokens), rows - 1)
    layered = model.layered
    return layered.encoder.batch([samples[i] for i in (longest, *others)]).to(layered.device)


def _measured(model: ExitModel, cell: Cell) -> dict[str, float]:
    """Return the seconds of each stage, of runs as they come: batches that stay whole, and batches that are cut down.

    The largest batch is met whole, time after time, so that its second run counts; a smaller one is what remains after
    rows have left, with cold caches and memory of a new size. A stage that comes often in a run counts with its mean:
    on a busy machine the median of a part is less than its part of the whole. What a check, or rows that leave, add to
    the block that follows is their own cost: an accelerator that was asked for an answer has nothing queued.
    """
    whole = _run(model, cell.whole, (), cell.rows)
    if cell.largest:
        bare = _bare(model, cell.whole)
        whole = _run(model, cell.whole, (), cell.rows)
    found = {"front": sum(whole["front"]), "block": fmean(whole["block"]), "head": sum(whole["head"] + whole["end"])}
    if model.depth > 1:
        after_leaving, *later = _run(model, cell.parted, (1,), cell.rows)["block"][1:]
        if later and not cell.largest:
            found["block"] = fmean(later)
        parted = _run(model, cell.parted, range(1, model.depth), cell.rows)
        checked = fmean(parted["block"][2:] or [found["block"]])
        found["check"] = fmean(parted["check"][1:] or parted["check"]) + checked - found["block"]
        found["leave"] = sum(parted["leave"]) + after_leaving - found["block"]
        found["end"] = sum(parted["end"])
    if cell.largest:
        found[BARE] = bare / sum(map(sum, whole.values()))
    return found


def _bare(model: ExitModel, inputs: Inputs) -> float:
    """Return the seconds of the model itself."""
    clock = Clock(model.device)
    clock("start")
    model.run(inputs, (), lambda layer, logits, rows: logits.new_zeros(len(rows), dtype=torch.bool))
    clock("end")
    return clock.seconds()[0][1]


def _run(model: ExitModel, inputs: Inputs, exits: Sequence[int], stay: int) -> dict[str, list[float]]:
    """Run one batch, of which so many rows stay after the first exit, and return the times by stage."""

    def decide(layer: int, logits: Tensor, rows: Tensor) -> Tensor:
        leaves = sureness(logits, model.criterion) > 2  # none: asked for the time that asking takes
        leaves[stay:] = True
        return leaves

    clock = Clock(model.device)
    clock("start")
    model.run(inputs, exits, decide, clock)
    clock("end")
    by_stage: dict[str, list[float]] = defaultdict(list)
    for stage, seconds in clock.seconds():
        by_stage[stage].append(seconds)
    return by_stage
