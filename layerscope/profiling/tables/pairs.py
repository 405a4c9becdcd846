"""Similarity of every two layers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from layerscope.metrics.pairs.cosines import cosine_to
from layerscope.metrics.pairs.similarity import FromPairs
from layerscope.profiling.tables.source import Row, Source

PART = 2048
"""A frame of per-sample values holds this many samples: text columns take many times what the numbers do."""


def pair_rows(source: Source) -> Iterator[Row]:
    """Yield the similarities of all pairs, the final layer among them, and keep each sample's cosine to it.

    What is not defined for so few samples is NaN.
    """
    poolings, columns = [*source.run.info["pair_pooling"], *source.poolings], source.run.columns
    for pooling, (metric, how) in source.share(product(poolings, source.wanted(FromPairs))):
        if metric.name == "cosine_similarity" and pooling == poolings[0]:
            _keep(source, cosine_to(source.run.states(pooling, columns, source.rows)), pooling)
        rows = how.rows(source.rows)
        states = source.run.states(pooling, columns, rows)
        if how.lack(len(rows), states.shape[2]) is None:
            values, errors, counts = how.measured(states)
        else:
            values = errors = torch.full((len(columns), len(columns)), math.nan, dtype=torch.float64)
            counts = torch.full_like(values, len(rows))
        for (i, a), (j, b) in product(enumerate(columns), enumerate(columns)):
            other: Row = {"layer_b": b.layer, "site_b": b.site, "variant": how.variant, "pooling": pooling}
            yield source.row(metric.name, a, float(values[i, j]), float(errors[i, j]), int(counts[i, j]), **other)


def _keep(source: Source, values: Tensor, pooling: str) -> None:
    """Keep each sample's cosine to the last layer, a part of the samples at a time."""
    sample, columns = source.sample[source.rows], source.run.columns

    def frame(start: int) -> pd.DataFrame:
        some = sample[start : start + PART]
        return pd.DataFrame(
            {
                "sample": np.repeat(some, len(columns)),
                "metric": "cosine_to_last",
                "variant": "centered",
                "pooling": pooling,
                "layer": np.tile([c.layer for c in columns], len(some)),
                "site": np.tile([c.site for c in columns], len(some)),
                "value": values[start : start + PART].reshape(-1).numpy(),
            }
        )

    source.folder.write_table("samples.cosine_to_last", map(frame, range(0, len(values), PART)))
