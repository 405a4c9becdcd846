"""How a run and a comparison take a similarity of layers: on which samples, and what its variant is called."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from layerscope.metrics.metric import How, Needs
from layerscope.metrics.pairs.blocks import States

Numbers = np.ndarray[Any, Any]
Found = tuple[Tensor, Tensor, Tensor]
MOST = 4096
"""A similarity that holds whole layers at a time takes at most this many samples of the plan, evenly spaced."""


@dataclass(frozen=True)
class FromPairs(How):
    """A similarity of every two layers."""

    needs: ClassVar[Needs] = "pairs"
    compute: Callable[..., Tensor]
    """Takes `states`, `others` and options; returns `[L, L']` as `similarity_matrix` does."""
    variant: str
    """What the choices made here are called in a run's table."""
    options: Mapping[str, Any] = field(default_factory=dict)
    least: int = 2
    """The fewest samples that it is defined for."""
    features: bool = False
    """Whether it fits a linear map: near 1 for noise unless there are far more samples than features."""
    all_samples: bool = False
    one_width: bool = False
    """Whether it is of vectors, not of geometries, so that both layers need the same number of features."""
    by_sample: Callable[..., Found] | None = None
    """Where each sample has a value: takes `states` and `others`; returns mean, standard error and number."""

    def rows(self, rows: Numbers) -> Numbers:
        """Return the rows it is taken of."""
        return rows if self.all_samples or len(rows) <= MOST else rows[np.arange(MOST) * len(rows) // MOST]

    def needed(self, width: int) -> int:
        """Return the samples that two layers of `width` features need for a value.

        Canonical correlations are 1 by construction where the ranks of both layers add up to more than N - 1.
        """
        return max(self.least, 2 * width + 1) if self.features else self.least

    def lack(self, count: int, width: int) -> str | None:
        """Return what `count` samples of `width` features lack for a value, or None."""
        needed = self.needed(width)
        return None if count >= needed else f"at width {width:,} it needs {needed:,} samples (take more --samples)"

    def measured(self, states: States, others: States | None = None) -> Found:
        """Return value, standard error (NaN where it is unknown) and number of samples `[L, L']` of every two layers.

        `states` and `others` as in `similarity_matrix`.
        """
        if self.by_sample is not None:
            return self.by_sample(states, others=others)
        values = self.compute(states, others, **self.options)
        return values, torch.full_like(values, math.nan), torch.full_like(values, states.shape[0])
