"""The plots of a comparison: layers of one run by layers of another, layers by checkpoints."""

import numpy as np
import pandas as pd

from layerscope.comparison.findings import Pair, headline, most_alike
from layerscope.core import capital
from layerscope.runs.registry import about, file_name, meaning_of, named
from layerscope.show import HeatMap

RINGS = "○ the layer across that is most like the one down; layer 0 is not a candidate."
LEAST = 0.05
"""The smallest range of similarities that a scale of colours spans."""


def square_map(pair: Pair, metric: str, variant: str) -> HeatMap:
    """Return the similarity of every layer of A with every one of B.

    The most similar of B is ringed.
    """
    square = pair.square(metric, variant)
    note = RINGS
    if square.isna().all(axis=None):
        note = f"the states of {pair.b.name} do not vary"
    return HeatMap.of(
        square,
        title=f"{capital(named(metric, variant))} of layers across runs",
        summary=headline(pair),
        about=meaning_of(metric),
        note=note,
        name=f"compared_{file_name(metric, variant)}",
        low=None,
        high=None,
        least=LEAST,
        down=f"layer of {pair.a.name}",
        across=f"layer of {pair.b.name}",
        rings=tuple(most_alike(square, metric)),
        square=True,
        reversed=about(metric).low,
    )


def checkpoint_map(metric: str, title: str, values: pd.DataFrame) -> HeatMap:
    """Return a map of layers by checkpoints."""
    entry = about(metric)
    numbers = values.to_numpy(dtype=np.float64)
    finite = numbers[np.isfinite(numbers)]
    note = ""
    if not len(finite):
        note = "no value: the states do not vary"
    return HeatMap.of(
        values,
        title=title,
        summary=f"A heat map of layers by checkpoints. {entry.meaning}",
        about=meaning_of(metric),
        unit=entry.unit,
        note=note,
        name=f"checkpoints_{metric}",
        sheet="checkpoints",
        low=None,
        high=None,
        least=LEAST * float(np.abs(finite).max(initial=0.0)),
        across="checkpoint",
        down="layer",
        log=entry.log and bool((finite > 0).all()),
        reversed=entry.log,
        upward=True,
    )
