"""Similarity of every two layers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from layerscope import metrics
from layerscope.metrics.pairs.cosines import angle_pairs
from layerscope.profiling.tables.source import Numbers, Row, Source

MOST = 4096
"""Samples of a similarity that holds whole layers at a time: so many of the plan, evenly spaced."""


@dataclass(frozen=True)
class Asked:
    """How a run takes one similarity: the metric, its options, what its variant is called."""

    metric: str
    variant: str
    options: dict[str, Any] = field(default_factory=dict)
    least: int = 2
    """The samples it is defined from on."""
    features: bool = False
    """Whether it is 1 by construction unless samples are more than features and one."""
    all_samples: bool = False

    def rows(self, rows: Numbers) -> Numbers:
        """Return the rows it is taken of."""
        return rows if self.all_samples or len(rows) <= MOST else rows[np.arange(MOST) * len(rows) // MOST]

    def defined(self, count: int, width: int) -> bool:
        """Return whether so many samples of so many features have a value."""
        return count >= (max(self.least, width + 2) if self.features else self.least)


ASKED = {
    "cka": Asked("cka", "linear,debiased", least=4, all_samples=True),
    "cka_rbf": Asked("cka", "rbf,debiased,median_sq_offdiag", {"kernel": "rbf"}, least=4),
    "cca": Asked("cca", "mean", least=3, features=True),
    "svcca": Asked("svcca", "variance=0.99", {"variance": 0.99}, least=3),
    "pwcca": Asked("pwcca", "weights_from=first", {"weights_from": "first"}, least=3, features=True),
    "procrustes": Asked("procrustes", "similarity", {"kind": "similarity"}),
    "rsa": Asked("rsa", "correlation,spearman", {"rdm": "correlation", "compare": "spearman"}, least=3),
    "pnka": Asked("pnka", "centered"),
    "mutual_knn": Asked("mutual_knn", "cosine,k=10", {"k": 10, "distance": "cosine"}, least=11),
}


def pair_rows(source: Source) -> Iterator[Row]:
    """Yield the similarities of all pairs, the final layer among them, and keep each sample's cosine to it.

    What is not defined for so few samples is NaN.
    """
    columns = source.run.columns
    for pooling in (poolings := [*source.run.info["pair_pooling"], *source.poolings]):
        states = source.run.states(pooling, columns, source.rows)
        if source.wants("cosine_similarity"):
            if pooling == poolings[0]:
                _keep(source, metrics.cosine_to(states), pooling)
            yield from _square(source, "cosine_similarity", "centered", pooling, *metrics.cosine_pairs(states))
        if source.wants("angular_distance"):
            yield from _square(source, "angular_distance", "centered", pooling, *angle_pairs(states))
        for name, asked in ASKED.items():
            if source.wants(name):
                yield from _square(source, name, asked.variant, pooling, *_measured(source, asked, pooling))


def _measured(source: Source, asked: Asked, pooling: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return values, errors (unknown) and numbers of samples of every two layers."""
    columns, rows = source.run.columns, asked.rows(source.rows)
    states = source.run.states(pooling, columns, rows)
    unknown = torch.full((len(columns), len(columns)), math.nan, dtype=torch.float64)
    defined = asked.defined(len(rows), states.shape[2])
    values = metrics.similarity_matrix(states, asked.metric, **asked.options) if defined else unknown
    return values, unknown, torch.full_like(values, len(rows))


def _square(
    source: Source, name: str, variant: str, pooling: str, values: Tensor, errors: Tensor, counts: Tensor
) -> Iterator[Row]:
    columns = source.run.columns
    for i, a in enumerate(columns):
        for j, b in enumerate(columns):
            other: Row = {"layer_b": b.layer, "site_b": b.site, "variant": variant, "pooling": pooling}
            yield source.row(name, a, float(values[i, j]), float(errors[i, j]), int(counts[i, j]), **other)


def _keep(source: Source, values: Tensor, pooling: str) -> None:
    columns, n = source.run.columns, len(source.rows)
    frame = pd.DataFrame(
        {
            "sample": np.repeat(source.sample[source.rows], len(columns)),
            "metric": "cosine_to_last",
            "variant": "centered",
            "pooling": pooling,
            "layer": np.tile([c.layer for c in columns], n),
            "site": np.tile([c.site for c in columns], n),
            "value": values.reshape(-1).numpy(),
        }
    )
    source.folder.write_table("samples.cosine_to_last", frame)
