"""Similarity of every two layers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
from torch import Tensor

from layerscope import metrics
from layerscope.profiling.tables.source import Row, Source, mean

LEAST = 4
"""Debiased CKA is defined from this many samples on."""


def pair_rows(source: Source) -> Iterator[Row]:
    """Yield cosine similarity and CKA of all pairs, the final layer among them, and keep each sample's cosine to it."""
    columns = source.run.columns
    for pooling in (poolings := [*source.run.info["pair_pooling"], *source.poolings]):
        states = source.run.states(pooling, columns, source.rows)
        if source.wants("cosine_similarity"):
            to_last = metrics.cosine_to(states)
            if pooling == poolings[0]:
                _keep(source, to_last)
            errors = [mean(layer)[1] for layer in to_last.T]
            matrix = metrics.similarity_matrix(states, "cosine_similarity")
            yield from _square(source, "cosine_similarity", "centered", matrix, pooling, errors)
        if source.wants("cka") and len(states) >= LEAST:
            matrix = metrics.similarity_matrix(states, "cka")
            yield from _square(source, "cka", "linear,debiased", matrix, pooling, [math.nan] * len(columns))


def _square(
    source: Source, name: str, variant: str, matrix: Tensor, pooling: str, errors_to_last: list[float]
) -> Iterator[Row]:
    columns = source.run.columns
    for i, a in enumerate(columns):
        for j, b in enumerate(columns):
            error = errors_to_last[i] if j == len(columns) - 1 else math.nan
            other: Row = {"layer_b": b.layer, "site_b": b.site}
            yield source.row(name, a, float(matrix[i, j]), error, variant=variant, pooling=pooling, **other)


def _keep(source: Source, values: Tensor) -> None:
    columns, n = source.run.columns, len(source.rows)
    frame = pd.DataFrame(
        {
            "sample": np.repeat(source.sample[source.rows], len(columns)),
            "metric": "cosine_to_last",
            "variant": "centered",
            "layer": np.tile([c.layer for c in columns], n),
            "site": np.tile([c.site for c in columns], n),
            "value": values.reshape(-1).numpy(),
        }
    )
    source.folder.write_table("samples.cosine_to_last", frame)
