"""What tables are computed from: the finite rows of a run, its layers and its poolings.

Processes share a table block by block: each walks through all blocks, and computes those whose
turn it gets.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from layerscope.core.processes import Team
from layerscope.metrics.metric import How, Metric
from layerscope.profiling.options import PassOptions
from layerscope.profiling.plan import seeded
from layerscope.runs import Run
from layerscope.runs.registry import measured
from layerscope.runs.states import OWN, Column, StoredStates

Row = dict[str, Any]
Numbers = np.ndarray[Any, Any]
T = TypeVar("T")
H = TypeVar("H", bound=How)

PROBED = 5000
"""A probe is fitted on at most this many seeded samples."""
FOLDS = 5


def can_be_probed(labels: Any) -> bool:
    """Return whether at least two classes have a member for every fold."""
    return bool((pd.Series(labels).value_counts() >= FOLDS).sum() >= 2)


class Source:
    """A run folder as the tables read it: no model, and of the states one block at a time.

    `rows` are the plan's rows of finite samples, in plan order; `distinct` those without exact
    copies, in the order of the samples: a probe that is trained on a sample is not to be judged on
    its copy; `probed` those of them that probes take. `total` counts the samples that were drawn,
    so that what is left out is counted (NaN, infinity, no token). A table is made in blocks that
    the processes of a team share; `block` numbers the one that is made now. `kept` are blocks,
    tables of samples, and frames for these.
    """

    def __init__(
        self, run: Run, options: PassOptions, team: Team | None = None
    ) -> None:
        self.run, self.options, self.folder, self.team = (
            run,
            options,
            run.folder,
            team or Team(),
        )
        self.numbers = self.team.numbers()
        self.block = self.mine = -1
        self.kept: list[tuple[int, str, pd.DataFrame]] = []
        self.sample, self.view = (
            run.folder.plan[name].to_numpy() for name in ("sample", "view")
        )
        self.fine = self.folder.finite()
        self.rows = np.flatnonzero((self.view == 0) & self.fine)
        distinct = self.rows[~self.folder.copies[self.rows]]
        self.distinct = distinct[np.argsort(self.sample[distinct])]
        self.probed: Numbers = seeded(self.distinct, PROBED, [options.seed, 3])
        self.total = int(run.info["data"]["samples"])
        self.poolings: list[str] = run.info["pooling"]

    def wanted(self, kind: type[H]) -> list[tuple[Metric, H]]:
        """Return the metrics of a kind that this run measures, each with how."""
        return [
            (metric, how)
            for metric, how in measured(kind)
            if self.options.measures(metric)
        ]

    def original_shards(self) -> Iterator[tuple[int, Numbers]]:
        """Yield the shards of samples themselves, each with which of its rows are finite."""
        for shard in self.folder.shards:
            rows = self.folder.rows(shard)
            if (rows["view"] == 0).all():
                yield shard, self.fine[rows.index]

    @property
    def is_ours(self) -> bool:
        """Whether the present block is this process's."""
        return self.block == self.mine

    def turn(self) -> bool:
        """Go on to the next block, and return whether it is this process's: each takes the next one that is free."""
        self.block += 1
        if self.mine < self.block:
            self.mine = next(self.numbers)
        return self.is_ours

    def share(self, items: Iterable[T]) -> Iterator[T]:
        """Yield those of the items, a block each, that are this process's."""
        return (item for item in items if self.turn())

    def keep(self, table: str, frame: pd.DataFrame) -> None:
        """Keep a part of a table of samples."""
        self.kept.append((self.block, table, frame))

    def layers(self) -> Iterator[tuple[str, Column, StoredStates]]:
        """Yield pooling and layer with the finite samples' states, this process's share.

        After layers 0..L come the final one, the sub-layers and the projected ones.
        """
        every = product(self.poolings, (*self.run.columns, *self.run.sublayers))
        for pooling, column in self.share(
            (*every, *product([OWN], self.run.projected))
        ):
            yield pooling, column, self.run.states(pooling, (column,), self.rows)

    def row(
        self,
        name: str,
        column: Column,
        value: float,
        stderr: float = math.nan,
        n: int | None = None,
        **more: Any,
    ) -> Row:
        """Return one row of the long frame; `n` samples (by default all finite ones) out of the total."""
        used = len(self.rows) if n is None else n
        total = more.pop("total", self.total)
        cells = {
            "layer": column.layer,
            "site": column.site,
            "value": float(value),
            "stderr": stderr,
        }
        return {
            "metric": name,
            "variant": None,
            "pooling": None,
            **cells,
            "n": used,
            "n_skipped": total - used,
            **more,
        }
