"""What a model with exits is worth: facts, a curve over thresholds, layers, and truncation at every depth."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.core import Store
from layerscope.show import Stored

TABLES: dict[str, dict[str, str]] = {
    "curve": {
        "threshold": "float64", "chosen": "bool", "mean_layer": "float64", "exit_speedup": "float64",
        "measured": "float64", "error": "float64", "accuracy": "float64", "disagreement": "float64",
    },
    "layers": {
        "layer": "int64", "checked": "bool", "leaving": "int64", "share": "float64", "cumulative": "float64",
    },
    "depths": {
        "layer": "int64", "accuracy": "float64", "disagreement": "float64", "measured": "float64",
        "error": "float64", "parameters": "int64",
    },
}  # fmt: skip
"""The columns of each table: shares in 0 … 1, speed-ups as factors, a threshold of infinity for never leaving."""
STORE = Store(
    "report of exits", "exits.json", "run layerscope exits again", TABLES, "csv"
)


@dataclass(frozen=True, eq=False)
class ExitReport(Stored):
    """What early exits cost and gain for one classifier, on one data set and machine.

    A sample leaves at the first of the `exits` whose confidence reaches the `threshold` (infinity:
    never), measured on `samples` of `data` in batches of `batch_size`, the exits chosen on `design`
    samples. `goal` says what is guaranteed, `calibration` holds its numbers. `pays` and `verdict`
    are the answer; `measured` is how many times faster than the plain model, `error` its standard
    error. Accuracies are None without labels, `disagreement` is the share of predictions that are
    not the plain model's, `plain_milliseconds` a sample's share of its time. `path` is the folder
    of the exit model, `folder` the one this report was opened from.

    `curve` has a row for each threshold, one of them `chosen`; its `exit_speedup` is that by depth
    alone, Σ L·mᵢ / Σ i·mᵢ for mᵢ samples that leave at layer i (Jiang et al. 2025). `layers` has a
    row for each layer 1 … L (which is checked, how many leave), `depths` for the model truncated at
    each layer; their columns are those of `TABLES`, NaN where something is not known or was not
    measured.

    >>> report = layerscope.open_exit_report("tiny-exits")
    >>> report.depth, report.classes, report.samples
    (3, 2, 24)
    >>> report.layers["layer"].tolist()
    [1, 2, 3]
    """

    DOCUMENT = "layerscope.early_exit.document"

    STORE = STORE

    model: str
    depth: int
    classes: int
    exits: tuple[int, ...]
    threshold: float
    batch_size: int
    samples: int
    design: int
    data: str
    machine: str
    goal: str
    calibration: dict[str, Any] | None
    pays: bool
    verdict: str
    measured: float
    error: float
    path: str | None
    accuracy: float | None
    plain_accuracy: float | None
    disagreement: float
    plain_milliseconds: float
    curve: pd.DataFrame = field(repr=False)
    layers: pd.DataFrame = field(repr=False)
    depths: pd.DataFrame = field(repr=False)
    notes: tuple[str, ...] = ()
    folder: Path | None = None

    @property
    def labelled(self) -> bool:
        """Whether accuracy is known; else agreement with the plain model is shown instead."""
        return self.accuracy is not None

    @property
    def chosen(self) -> pd.Series:
        """The row of the curve that was chosen."""
        return self.curve[self.curve["chosen"]].iloc[0]


def open_exit_report(folder: str | Path) -> ExitReport:
    """Return the report of exits that was saved into a folder.

    Raises `LayerscopeError` for a folder without one, and for files that are damaged or changed
    since.

    >>> layerscope.open_exit_report("tiny-exits").data
    'reviews'
    """
    return ExitReport.opened(folder)
