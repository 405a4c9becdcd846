"""What early exits cost on the clock, by the seconds of every stage, and which of them are worth it on a data set."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerscope.early_exit.predictions import NEVER, Recorded

STAGES = ("front", "block", "check", "leave", "head", "end")
"""What a run spends its time on: all before the first block, one block, one exit's look at the rows, taking the rows
that leave out of the batch, the model's own head after the last block, and putting the rows in
order again."""

Seconds = NDArray[np.float64]
Rows = NDArray[np.int64]
"""Numbers of samples."""
Exits = tuple[int, ...]
Plan = Sequence[Rows]
"""Which samples go together, in each batch."""


@dataclass(frozen=True)
class Times:
    """Seconds of every stage at some sizes of a batch, from the least that runs: `seconds[stage]` is `[rows, tokens]`.

    "leave" is read at what remains in the batch, "end" at the whole of it, the others at what they
    work on. The model without hooks takes the share `bare` of the stages of a batch that nothing
    leaves.
    """

    rows: tuple[int, ...]
    tokens: tuple[int, ...]
    seconds: Mapping[str, Seconds]
    bare: float = 1.0

    def at(self, stage: str, rows: Rows, tokens: Rows) -> Seconds:
        """Return the seconds of a stage at all these sizes, `[rows, tokens]`, linear between those measured."""
        by_tokens = [np.interp(tokens, self.tokens, row) for row in self.seconds[stage]]
        table = np.column_stack(
            [np.interp(rows, self.rows, column) for column in zip(*by_tokens, strict=True)]
        )
        return np.where(np.asarray(rows)[:, None] > 0, table, 0.0)


@dataclass(frozen=True)
class Prediction:
    """Seconds that a data set takes with these exits at this threshold, and without.

    `leaving` [L] counts the samples by their layer. No exits, with the threshold inf, are the plain
    model.
    """

    exits: Exits
    threshold: float
    seconds: float
    plain_seconds: float
    leaving: NDArray[np.int64]
    ceiling: float = math.inf

    @property
    def speedup(self) -> float:
        """How many times faster than the plain model, at most the `ceiling`; 1 where nothing runs.

        The `ceiling` is what the blocks left out allow: positions that the plain model's blocks run
        on, by those of exits.
        """
        return min(self.plain_seconds / self.seconds, self.ceiling) if self.seconds else 1.0


class Simulation:
    """Runs of one data set in the batches of one plan, none of them empty: made once, for many exits and thresholds.

    With `trims` a batch is as long as its longest sample that has not left, else as its longest one
    to the end.
    """

    def __init__(self, recorded: Recorded, plan: Plan, times: Times, *, trims: bool = True) -> None:
        sizes = [len(batch) for batch in plan]
        self.recorded, self.trims = recorded, trims
        self.batches, self.depth = len(plan), recorded.depth
        self.samples = np.concatenate(plan)
        self.batch = np.repeat(np.arange(self.batches), sizes)
        self.lengths, self.rank = np.unique(recorded.lengths[self.samples], return_inverse=True)
        rows = np.arange(max(sizes) + 1)
        self.tables = {stage: times.at(stage, rows, self.lengths) for stage in STAGES}
        self.bare = times.bare
        self.plain_seconds = self.run((), NEVER).plain_seconds

    def run(self, exits: Sequence[int], threshold: float) -> Prediction:
        """Return what these exits (layers 1 … L − 1, ascending) cost and win with one threshold."""
        # exits that nobody takes are not checked
        checks = () if threshold == NEVER else exits
        leaves = self.recorded.leaves(checks, threshold)[self.samples]
        rows, tokens = self._sizes(leaves)
        checked = np.asarray(checks, dtype=np.int64) - 1
        before, after = rows[:, checked], rows[:, checked + 1]
        # none leaves, or all: the batch is not taken apart
        remain = np.where(after < before, after, 0)
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
            seconds *= self.bare
            return Prediction(tuple(exits), threshold, seconds, seconds, leaving)
        positions = rows * self.lengths[tokens]
        ceiling = self.depth * float(positions[:, 0].sum()) / float(positions.sum())
        return Prediction(tuple(exits), threshold, seconds, self.plain_seconds, leaving, ceiling)

    def _sizes(self, leaves: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how many rows of each batch enter each block, and the rank of their length, both [batches, L]."""
        at, shape = self.batch * self.depth + leaves - 1, (self.batches, self.depth)
        rows = np.bincount(at, minlength=self.batches * self.depth).reshape(shape)
        longest = np.zeros(shape, dtype=np.int64)
        np.maximum.at(longest.reshape(-1), at, self.rank)
        rows = rows[:, ::-1].cumsum(1)[:, ::-1]
        longest = np.maximum.accumulate(longest[:, ::-1], axis=1)[:, ::-1]
        return rows, longest if self.trims else np.broadcast_to(longest[:, :1], longest.shape)

    def _seconds(self, stage: str, rows: NDArray[np.int64], tokens: NDArray[np.int64]) -> float:
        return float(self.tables[stage][rows, tokens].sum())


def choose_exits(
    recorded: Recorded,
    plan: Plan,
    times: Times,
    allowed: Callable[[Exits], float],
    *,
    trims: bool = True,
) -> Prediction:
    """Return the exits that are expected to be fastest at the threshold they are `allowed`, never slower than none.

    From no exits on the one is added with which all are fastest, as long as that helps: at most L²
    / 2 predictions. On three trained models of 6 and 12 layers a search that also drops and
    exchanges exits finds the same ones.
    """
    simulation = Simulation(recorded, plan, times, trims=trims)
    best = simulation.run((), NEVER)
    while others := set(range(1, recorded.depth)).difference(best.exits):
        larger = [tuple(sorted((*best.exits, layer))) for layer in sorted(others)]
        predictions = [simulation.run(exits, allowed(exits)) for exits in larger]
        choice = min(predictions, key=lambda prediction: prediction.seconds)
        if choice.seconds >= best.seconds:
            break
        best = choice
    return best
