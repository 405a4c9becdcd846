"""What `train` left beside a checkpoint that is to be truncated: the score of every layer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from layerscope.runs import open_run
from layerscope.runs.depths import NAME, depths

HISTORY = "history"
METRICS = {"layer_accuracy": "accuracy"}


@dataclass(frozen=True)
class TrainedScores:
    """The score of every layer through the trained head, on so many samples of the evaluation data."""

    table: pd.DataFrame
    data: str
    samples: int

    @property
    def name(self) -> str:
        """What was measured: accuracy or perplexity."""
        found = str(self.table["metric"].iloc[0])
        return METRICS.get(found, found)

    def at(self, layer: int) -> tuple[float | None, float | None]:
        """Return the score of a layer and its standard error."""
        rows = self.table[self.table["layer"] == layer]
        return (None, None) if rows.empty else (float(rows["value"].iloc[0]), float(rows["stderr"].iloc[0]))


def trained_scores(folder: Path, depth: int) -> TrainedScores | None:
    """Return what `train` kept of a model of this depth in its folder, None where it did not make it."""
    history = folder / HISTORY
    if not (history / NAME).is_file():
        return None
    run = open_run(history)
    table = depths(run)
    table = None if table is None else table[table["depth"] == depth]
    if table is None or table.empty:
        return None
    return TrainedScores(table, run.info["data"]["name"], run.info["data"]["samples"])
