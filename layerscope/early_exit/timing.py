"""The seconds of every stage of a run with early exits, measured on this machine, this model and these samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median

import numpy as np
from torch import Tensor

from layerscope.core.progress import Reporter
from layerscope.core.stopwatch import Clock, Stopwatch, rounds_in
from layerscope.early_exit.cost_model import STAGES, Plan, Rows, Times
from layerscope.early_exit.criteria import sureness
from layerscope.early_exit.exit_model import ExitModel
from layerscope.early_exit.validation import Validation
from layerscope.models.forward import Inputs

SECONDS = 20.0
BARE = "bare"
FEWEST, MOST = 2, 50
"""Rounds over all sizes: as many as fit into these seconds, between these."""


@dataclass(frozen=True)
class Size:
    """One size of a batch: the `whole` of it runs to the end; of `parted`, up to twice as large, `rows` stay."""

    rows: int
    largest: bool
    whole: Inputs
    parted: Inputs


def measure_times(model: ExitModel, read: Validation, lengths: Rows, plan: Plan, reporter: Reporter) -> Times:
    """Return what each stage takes, at sizes from a row and the shortest length to the plan's largest batch.

    Rows are made to leave whatever they say, so that every stage is met at every size; `lengths` [N] are their
    positions. The sizes take turns, so that a busy machine slows all of them alike; at least three rounds are run.
    """
    most = max(map(len, plan))
    rows = (*(2**k for k in range(most.bit_length()) if 2**k < most), most)
    tokens = _token_sizes(lengths[np.concatenate(plan)])
    batch = partial(_batch, model, read, lengths)
    sizes = [Size(b, b == most, batch(b, t), batch(min(2 * b, most + 1), t)) for b in rows for t in tokens]
    warming = 0.0
    with reporter.bar("warming up", len(sizes), "sizes") as advance:
        for size in sizes:
            warming += Stopwatch(model.device).seconds(partial(_measured, model, size))
            advance(1)
    rounds = rounds_in(SECONDS - warming, warming, FEWEST, MOST)
    found: list[dict[str, list[float]]] = [defaultdict(list) for _ in sizes]
    with reporter.bar("measuring stages", rounds * len(sizes), "sizes") as advance:
        for _ in range(rounds):
            for size, seconds in zip(sizes, found, strict=True):
                for stage, took in _measured(model, size).items():
                    seconds[stage].append(took)
                advance(1)
    shape = len(rows), len(tokens)
    tables = {
        stage: np.array([max(median(seconds[stage] or [0.0]), 0.0) for seconds in found]).reshape(shape)
        for stage in STAGES
    }
    return Times(rows, tokens, tables, median(share for seconds in found for share in seconds[BARE]))


def _token_sizes(lengths: Rows) -> tuple[int, ...]:
    """Return the lengths of the shortest and of the longest sample, and of one between."""
    found = np.unique(lengths)
    middle = found[np.abs(found - (found[0] + found[-1]) / 2).argmin()]
    return tuple(sorted({int(found[0]), int(middle), int(found[-1])}))


def _batch(model: ExitModel, read: Validation, lengths: Rows, rows: int, tokens: int) -> Inputs:
    """Return a batch whose first sample is the longest, with that many tokens, and the others are drawn."""
    longest = int((lengths == tokens).argmax())
    others = np.random.default_rng(0).choice(np.flatnonzero(lengths <= tokens), rows - 1)
    return read.batch(np.array([longest, *others])).to(model.device)


def _measured(model: ExitModel, size: Size) -> dict[str, float]:
    """Return the seconds of each stage, of runs as they come: batches that stay whole, and batches that are cut down.

    The largest batch is met whole, time after time, so that its second run counts; a smaller one is what remains after
    rows have left, with cold caches and memory of a new size. A stage that comes often in a run counts with its mean:
    on a busy machine the median of a part is less than its part of the whole. What a check, or rows that leave, add to
    the block that follows is their own cost: an accelerator that was asked for an answer has nothing queued.
    """
    whole = _run(model, size.whole, (), size.rows)
    if size.largest:
        bare = sum(_run(model, size.whole, None, size.rows)["end"])
        whole = _run(model, size.whole, (), size.rows)
    found = {"front": sum(whole["front"]), "block": fmean(whole["block"]), "head": sum(whole["head"] + whole["end"])}
    if model.depth > 1:
        after_leaving, *later = _run(model, size.parted, (1,), size.rows)["block"][1:]
        if later and not size.largest:
            found["block"] = fmean(later)
        parted = _run(model, size.parted, range(1, model.depth), size.rows)
        checked = fmean(parted["block"][2:] or [found["block"]])
        found["check"] = fmean(parted["check"][1:] or parted["check"]) + checked - found["block"]
        found["leave"] = sum(parted["leave"]) + after_leaving - found["block"]
        found["end"] = sum(parted["end"])
    if size.largest:
        found[BARE] = bare / sum(map(sum, whole.values()))
    return found


def _run(model: ExitModel, inputs: Inputs, exits: Sequence[int] | None, stay: int) -> dict[str, list[float]]:
    """Run a batch, of which `stay` rows stay after the first exit (None: the bare model); return the times by stage."""

    def decide(layer: int, logits: Tensor, rows: Tensor) -> Tensor:
        leaves = sureness(logits, model.criterion) > 2  # none: asked for the time that asking takes
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
