"""How every similarity of layers is taken of runs: its options, its samples, and what its variant is called."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.metrics.pairs.blocks import States
from layerscope.metrics.pairs.cosines import angle_pairs, cosine_pairs
from layerscope.metrics.pairs.matrix import similarity_matrix

Numbers = np.ndarray[Any, Any]
MOST = 4096
"""Samples of a similarity that holds whole layers at a time: so many of the plan, evenly spaced."""
BY_SAMPLE = {"cosine_similarity": cosine_pairs, "angular_distance": angle_pairs}
"""Similarities of which each sample has a value: they have standard errors, and numbers of samples of their own."""


@dataclass(frozen=True)
class Asked:
    """How one similarity is taken: the metric, its options, what its variant is called."""

    metric: str
    variant: str
    options: dict[str, Any] = field(default_factory=dict)
    least: int = 2
    """The samples it is defined from on."""
    features: bool = False
    """Whether it fits a linear map: near 1 for noise unless there are far more samples than features."""
    all_samples: bool = False

    def rows(self, rows: Numbers) -> Numbers:
        """Return the rows it is taken of."""
        return rows if self.all_samples or len(rows) <= MOST else rows[np.arange(MOST) * len(rows) // MOST]

    def needed(self, width: int) -> int:
        """Return the samples that two layers of `width` features need for a value.

        Canonical correlations are 1 by construction where the ranks of both layers add up to more than N - 1.
        """
        return max(self.least, 2 * width + 1) if self.features else self.least

    def measured(self, states: States, others: States | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return value, standard error (NaN where it is unknown) and number of samples `[L, L']` of every two layers.

        `states` and `others` as in `similarity_matrix`.
        """
        if self.metric in BY_SAMPLE:
            return BY_SAMPLE[self.metric](states, others=others)
        values = similarity_matrix(states, self.metric, others=others, **self.options)
        return values, torch.full_like(values, math.nan), torch.full_like(values, states.shape[0])


ASKED = {
    "cosine_similarity": Asked("cosine_similarity", "centered", least=0, all_samples=True),
    "angular_distance": Asked("angular_distance", "centered", least=0, all_samples=True),
    "cka": Asked("cka", "linear,debiased", least=4, all_samples=True),
    "cka_rbf": Asked("cka", "rbf,debiased,median_sq_offdiag", {"kernel": "rbf"}, least=4),
    "cca": Asked("cca", "mean", least=3, features=True),
    "svcca": Asked("svcca", "variance=0.99", {"variance": 0.99}, least=3, features=True),
    "pwcca": Asked("pwcca", "weights_from=first", {"weights_from": "first"}, least=3, features=True),
    "procrustes": Asked("procrustes", "similarity", {"kind": "similarity"}),
    "rsa": Asked("rsa", "correlation,spearman", {"rdm": "correlation", "compare": "spearman"}, least=3),
    "pnka": Asked("pnka", "centered"),
    "mutual_knn": Asked("mutual_knn", "cosine,k=10", {"k": 10, "distance": "cosine"}, least=11),
}
