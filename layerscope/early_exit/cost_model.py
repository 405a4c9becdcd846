"""What early exits cost by the seconds of a block and of a check, and which of them are worth it on a data set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from layerscope.early_exit.predictions import NEVER, Floats, Layers, Numbers, Recorded

Seconds = Floats
Rows = Numbers
"""Numbers of samples."""
Exits = tuple[int, ...]
Plan = Sequence[Rows]
"""Which samples go together, in each batch."""


@dataclass(frozen=True)
class Costs:
    """Seconds of one block, and of one check with the rows that leave taken out, by the `rows` that are left.

    Between the measured numbers of rows they are linear; no rows take no time.
    """

    rows: tuple[int, ...]
    block: tuple[float, ...]
    check: tuple[float, ...]

    def seconds(
        self, leaving: Layers, exits: Exits, depth: int, batch_size: int
    ) -> float:
        """Return the seconds of samples, in batches as they come, that leave at these layers [N]."""
        batches = np.arange(len(leaving)) // batch_size
        rows_entering = []
        for layer in range(1, depth + 1):
            enters = batches[leaving >= layer]
            rows_entering.append(np.bincount(enters, minlength=batches[-1] + 1))
        entering = np.stack(rows_entering)
        checked = entering[[layer - 1 for layer in exits]]
        rows = (0, *self.rows)
        blocks = np.interp(entering, rows, (0.0, *self.block))
        checks = np.interp(checked, rows, (0.0, *self.check))
        return float(blocks.sum() + checks.sum())


def choose_exits(
    recorded: Recorded, costs: Costs, batch_size: int, allowed: Callable[[Exits], float]
) -> Exits:
    """Return the exits that are expected to be fastest at the threshold they are `allowed`, never slower than none.

    From no exits on the one is added with which all are fastest, as long as that helps: at most L²
    / 2 predictions. On three trained models of 6 and 12 layers a search that also drops and
    exchanges exits finds the same ones.
    """

    def seconds(exits: Exits) -> float:
        threshold = allowed(exits) if exits else NEVER
        leaving = recorded.leaves(exits, threshold)
        return costs.seconds(leaving, exits, recorded.depth, batch_size)

    best: Exits = ()
    fastest = seconds(best)
    while others := set(range(1, recorded.depth)).difference(best):
        larger = [tuple(sorted((*best, layer))) for layer in sorted(others)]
        times = [seconds(exits) for exits in larger]
        if min(times) >= fastest:
            break
        fastest = min(times)
        best = larger[times.index(fastest)]
    return best
