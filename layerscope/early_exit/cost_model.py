"""What early exits cost on the clock: the seconds of every stage of a run, and what they predict for a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layerscope.core.errors import LayerscopeError
from layerscope.early_exit.criteria import NEVER
from layerscope.early_exit.recorded import Recorded

STAGES = ("front", "block", "check", "leave", "head", "end")
"""What a run spends its time on: all before the first block, one block, one exit's look at the rows, taking the rows
that leave out of the batch, the model's own head after the last block, and putting the rows in order again."""

Seconds = NDArray[np.float64]
Plan = Sequence[NDArray[np.int64]]
"""Which samples go together: one array of their numbers a batch."""


@dataclass(frozen=True)
class Times:
    """Seconds of every stage at some sizes of a batch: `seconds[stage]` is `[rows, tokens]`.

    "leave" is read at what remains in the batch, "end" at the whole batch, the other stages at what they work on. The
    model itself, without hooks, takes the share `bare` of the stages of a batch that nothing leaves.

    Raises:
        LayerscopeError: where the sizes do not grow or a stage's seconds do not fit them.

    """

    rows: tuple[int, ...]
    tokens: tuple[int, ...]
    seconds: Mapping[str, Seconds]
    bare: float = 1.0

    def __post_init__(self) -> None:
        for name, sizes in (("rows", self.rows), ("tokens", self.tokens)):
            if not sizes or sizes[0] < 1 or any(b <= a for a, b in zip(sizes, sizes[1:], strict=False)):
                raise LayerscopeError(f"measured {name} {list(sizes)} do not grow from 1 on: measure again")
        for stage in STAGES:
            table = self.seconds.get(stage)
            if table is None or table.shape != (len(self.rows), len(self.tokens)) or not bool(np.all(table >= 0)):
                raise LayerscopeError(f"the seconds of {stage!r} do not fit the measured sizes: measure again")
        if not self.bare > 0:
            raise LayerscopeError(f"the plain model's share {self.bare!r} of the stages is not valid: measure again")

    def at(self, stage: str, rows: ArrayLike, tokens: ArrayLike) -> Seconds:
        """Return the seconds of a stage at these sizes, shapes broadcast: linear between what was measured.

        Below the least measured size it is the time of that size, beyond the largest one it goes on growing, if it
        grew, as it did at the end; from one size alone it is in proportion. A batch without rows takes none.
        """
        rows, tokens = np.broadcast_arrays(np.asarray(rows), np.asarray(tokens))
        heights, widths, table = _from_nothing(self.rows, self.tokens, self.seconds[stage])
        low, share = _between(heights, rows)
        left, part = _between(widths, tokens)
        shorter = _line(table[low, left], table[low + 1, left], share)
        longer = _line(table[low, left + 1], table[low + 1, left + 1], share)
        return np.where(rows > 0, _line(shorter, longer, part), 0.0)

    def as_dict(self) -> dict[str, Any]:
        """Return numbers, lists and names alone, for JSON."""
        seconds = {stage: self.seconds[stage].tolist() for stage in STAGES}
        return {"rows": list(self.rows), "tokens": list(self.tokens), "seconds": seconds, "bare": self.bare}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Times:
        """Return the times that `as_dict` gave; raises `LayerscopeError` where a part is missing or does not fit."""
        try:
            seconds = {stage: np.asarray(found["seconds"][stage], dtype=np.float64) for stage in STAGES}
            return cls(tuple(found["rows"]), tuple(found["tokens"]), seconds, found["bare"])
        except (KeyError, TypeError, ValueError) as error:
            raise LayerscopeError(f"stored times cannot be read ({error}): measure again") from None


def _from_nothing(
    rows: tuple[int, ...], tokens: tuple[int, ...], table: Seconds
) -> tuple[NDArray[np.int64], NDArray[np.int64], Seconds]:
    """Return sizes and their seconds; where only one was measured, none of it comes before, for nothing."""
    if len(rows) == 1:
        rows, table = (0, *rows), np.pad(table, ((1, 0), (0, 0)))
    if len(tokens) == 1:
        tokens, table = (0, *tokens), np.pad(table, ((0, 0), (1, 0)))
    return np.asarray(rows), np.asarray(tokens), table


def _between(sizes: NDArray[np.int64], wanted: NDArray[Any]) -> tuple[NDArray[np.int64], Seconds]:
    """Return the measured size before each wanted one and how far it is to the next: beyond 1 after the last."""
    low = np.clip(np.searchsorted(sizes, wanted, side="right") - 1, 0, len(sizes) - 2)
    return low, np.maximum((wanted - sizes[low]) / (sizes[low + 1] - sizes[low]), 0.0)


def _line(start: Seconds, end: Seconds, share: Seconds) -> Seconds:
    """Return the value a share of the way on; beyond the end only upwards, as noise must not make more work cheaper."""
    step: Seconds = end - start
    value: Seconds = start + np.minimum(share, 1) * step + np.maximum(share - 1, 0) * np.maximum(step, 0)
    return value


@dataclass(frozen=True)
class Prediction:
    """Seconds that a data set takes with early exits and without; `leaving` [L] counts the samples by their layer."""

    seconds: float
    plain_seconds: float
    leaving: NDArray[np.int64]

    @property
    def speedup(self) -> float:
        """How many times faster than the plain model; 1 where nothing runs."""
        return self.plain_seconds / self.seconds if self.seconds else 1.0


class Simulation:
    """Runs of one data set in the batches of one plan: made once, asked for many exits and thresholds.

    With `trims` a batch is as long as its longest sample that has not left, else as its longest one to the end.

    Raises:
        LayerscopeError: for a plan without samples.

    """

    def __init__(self, recorded: Recorded, plan: Plan, times: Times, *, trims: bool = True) -> None:
        sizes = np.asarray([len(batch) for batch in plan], dtype=np.int64)
        if not sizes.sum():
            raise LayerscopeError("nothing to predict: the plan holds no samples")
        self.recorded, self.trims = recorded, trims
        self.batches, self.depth = len(plan), recorded.depth
        self.samples = np.concatenate([np.asarray(batch, dtype=np.int64) for batch in plan])
        self.batch = np.repeat(np.arange(self.batches), sizes)
        lengths, self.rank = np.unique(recorded.lengths[self.samples], return_inverse=True)
        every = np.arange(sizes.max() + 1)[:, None]
        self.tables = {stage: times.at(stage, every, lengths[None]) for stage in STAGES}
        self.bare = times.bare
        self.plain_seconds = self.run((), np.inf).plain_seconds

    def run(self, exits: Sequence[int], threshold: float) -> Prediction:
        """Return what these exits (layers 1 … L − 1, ascending) cost and win with one threshold."""
        exits = () if threshold == NEVER else exits  # an exit model that never leaves checks nothing
        leaves = self.recorded.leaves(exits, threshold)[self.samples]
        rows, tokens = self._sizes(leaves)
        checked = np.asarray(exits, dtype=np.int64) - 1
        before, after = rows[:, checked], rows[:, checked + 1]
        remain = np.where(after < before, after, 0)  # none leaves, or all: the batch is not taken apart
        first, last = rows[:, 0], rows[:, -1]
        # the model's own head reads a whole batch; what remains of one is read as an exit reads it
        whole = np.where(last == first, last, 0)
        seconds = (
            self._seconds("front", first, tokens[:, 0])
            + self._seconds("block", rows, tokens)
            + self._seconds("check", before, tokens[:, checked])
            + self._seconds("leave", remain, tokens[:, checked + 1])
            + self._seconds("head", whole, tokens[:, -1])
            + self._seconds("check", last - whole, tokens[:, -1])
            + self._seconds("end", first - whole, tokens[:, 0])
        )
        leaving = np.bincount(leaves - 1, minlength=self.depth)
        if not len(checked):
            return Prediction(self.bare * seconds, self.bare * seconds, leaving)
        return Prediction(seconds, self.plain_seconds, leaving)

    def _sizes(self, leaves: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how many rows of each batch enter each block, and the rank of their length, both [batches, L]."""
        place = self.batch * self.depth + leaves - 1
        last = np.bincount(place, minlength=self.batches * self.depth).reshape(self.batches, self.depth)
        rank = np.zeros(self.batches * self.depth, dtype=np.int64)
        np.maximum.at(rank, place, self.rank)
        rank = rank.reshape(self.batches, self.depth)[:, ::-1]
        longest = np.maximum.accumulate(rank, axis=1)[:, ::-1]
        rows = last[:, ::-1].cumsum(1)[:, ::-1]
        return rows, longest if self.trims else np.broadcast_to(longest[:, :1], longest.shape)

    def _seconds(self, stage: str, rows: NDArray[np.int64], tokens: NDArray[np.int64]) -> float:
        return float(self.tables[stage][rows, tokens].sum())


def predict(
    recorded: Recorded, plan: Plan, exits: Sequence[int], threshold: float, times: Times, *, trims: bool = True
) -> Prediction:
    """Return what a data set costs in the batches of a plan when rows leave at these exits (see `Simulation`).

    The plain model pads to the longest sample of each batch. Raises `LayerscopeError` for a plan without samples.
    """
    return Simulation(recorded, plan, times, trims=trims).run(exits, threshold)
