"""What depth buys: the scores of trained models at each depth beside the time they take, as `train` wrote them."""

from __future__ import annotations

import pandas as pd

from layerscope.core.errors import LayerscopeError
from layerscope.runs.run import Run

NAME = "depths.csv"
NUMBERS = ("depth", "layer", "value", "stderr", "ms_per_sample", "megabytes")
COLUMNS = ("name", "objective", "metric", *NUMBERS)


def depths(run: Run) -> pd.DataFrame | None:
    """Return a row for each model (`name`) and layer of it that was measured, None where a run has no such file.

    Raises `LayerscopeError` for a file that is not what it should be.
    """
    path = run.path / NAME
    if not path.is_file():
        return None
    try:
        found = pd.read_csv(path, dtype={"name": str, "objective": str, "metric": str}, float_precision="round_trip")
    except (OSError, ValueError) as error:
        raise LayerscopeError(f"{str(path)!r} cannot be read ({error}): delete it, or train again") from error
    lacking = [name for name in COLUMNS if name not in found]
    if lacking:
        raise LayerscopeError(f"{str(path)!r} has no column {lacking[0]!r}: delete it, or train again")
    try:
        return found.astype(dict.fromkeys(NUMBERS, "float64")).dropna(subset=["name", "layer", "metric", "value"])
    except ValueError as error:
        raise LayerscopeError(f"{str(path)!r} holds no number ({error}): delete it, or train again") from error
