"""What tables are computed from: the finite rows of a run, its layers and its poolings."""

import math
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from layerscope.core.labels import is_target
from layerscope.metrics.metric import How, Metric
from layerscope.profiling.options import PassOptions
from layerscope.profiling.plan import seeded
from layerscope.runs import Run
from layerscope.runs.registry import measured
from layerscope.runs.states import Column

Row = dict[str, Any]
Part = Row | tuple[str, pd.DataFrame]
"""A row of a table, or a part of a table of samples with its name."""
Numbers = np.ndarray[Any, Any]
H = TypeVar("H", bound=How)

PROBED = 5000
"""A probe is fitted on at most this many seeded samples."""
FOLDS = 5


def can_be_probed(labels: Any) -> bool:
    """Return whether at least two classes have a member for every fold, or numbers to predict differ.

    >>> can_be_probed(["a"] * 5 + ["b"] * 5), can_be_probed(["a"] * 9 + ["b"])
    (True, False)
    """
    if is_target(labels):
        return len(labels) >= 2 * FOLDS and len({*labels}) > 1
    return bool((pd.Series(labels).value_counts() >= FOLDS).sum() >= 2)


class Source:
    """A run folder as the tables read it: no model, and of the states one block at a time.

    `rows` are the plan's rows of finite samples, in plan order; `distinct` those without exact
    copies, in the order of the samples: a probe that is trained on a sample is not to be judged on
    its copy; `probed` those of them that probes take. `total` counts the samples that were drawn,
    so that what is left out is counted (NaN, infinity, no token).
    """

    def __init__(self, run: Run, options: PassOptions) -> None:
        self.run = run
        self.options = options
        self.folder = run.folder
        self.sample: Numbers = run.folder.plan["sample"].to_numpy()
        self.view: Numbers = run.folder.plan["view"].to_numpy()
        self.fine = self.folder.finite()
        self.rows = np.flatnonzero((self.view == 0) & self.fine)
        distinct = self.rows[~self.folder.copies[self.rows]]
        self.distinct = distinct[np.argsort(self.sample[distinct])]
        self.probed: Numbers = seeded(self.distinct, PROBED, [options.seed, 3])
        self.total = int(run.info["data"]["samples"])
        self.poolings: list[str] = run.info["pooling"]
        self.pair_poolings: list[str] = [*run.info["pair_pooling"], *self.poolings]

    def wanted(self, kind: type[H]) -> list[tuple[Metric, H]]:
        """Return the metrics of a kind that this run measures, each with how it is computed."""
        is_wanted = self.options.measures
        return [(metric, how) for metric, how in measured(kind) if is_wanted(metric)]

    def row(
        self,
        name: str,
        column: Column,
        value: float,
        stderr: float = math.nan,
        n: int | None = None,
        **more: Any,
    ) -> Row:
        """Return one row of the long frame.

        It is about `n` samples, by default all finite ones; what is missing to the `total` is
        counted as skipped. `more` are other columns of the frame, such as variant and pooling.
        """
        used = len(self.rows) if n is None else n
        return {
            "metric": name,
            "variant": None,
            "pooling": None,
            "layer": column.layer,
            "site": column.site,
            "value": float(value),
            "stderr": stderr,
            "n": used,
            "n_skipped": more.pop("total", self.total) - used,
            **more,
        }
